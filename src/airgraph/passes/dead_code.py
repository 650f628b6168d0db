"""Remove what nobody uses."""

from __future__ import annotations

from torch.fx import GraphModule

__all__ = ["remove_dead_code"]


def remove_dead_code(gm: GraphModule) -> int:
    """Remove operators whose results are not used and that have no other effect; returns how many."""
    before = len(gm.graph.nodes)
    gm.graph.eliminate_dead_code()
    return before - len(gm.graph.nodes)
