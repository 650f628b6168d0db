"""FX graphs, and trees of values."""

from __future__ import annotations

from torch.fx import Graph, GraphModule
from torch.utils._pytree import tree_leaves

__all__ = ["set_graph", "tree_leaves"]


def set_graph(gm: GraphModule, graph: Graph) -> None:
    """As `gm.graph = graph`, without generating code."""
    gm._graph = graph
    graph.owning_module = gm
