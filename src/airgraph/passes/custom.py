"""What a pass of the user's must leave as it was, and what it may leave to us."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from airgraph.program.nodes import computed

__all__ = ["Before"]


@dataclass(frozen=True, slots=True)
class Before:
    """Inputs and outputs of a graph, and what each node called, before a pass."""

    placeholders: tuple[str, ...]
    outputs: int
    calls: dict[str, str]

    @classmethod
    def of(cls, graph: Graph) -> Before:
        return cls(_placeholders(graph), _outputs(graph), {node.name: _call(node) for node in graph.nodes})

    def check(self, gm: GraphModule) -> int:
        """Whether the graph was changed, after making sure that it can be used in the place of the one before.

        Values that new or changed nodes give are worked out anew, as fake tensors. Raises ValueError; or what an
        operator raises, with the node's name as `node`.
        """
        graph = gm.graph
        if _outputs(graph) != self.outputs:
            raise ValueError(f"the graph had {self.outputs} outputs and has {_outputs(graph)} afterwards")
        if _placeholders(graph) != self.placeholders:
            raise ValueError(
                f"the inputs were {', '.join(self.placeholders)} and are {', '.join(_placeholders(graph))} afterwards"
            )
        if {node.name: _call(node) for node in graph.nodes} == self.calls:
            return 0
        # Before values are worked out in the order of the graph.
        graph.lint()
        of_other_form: set[Node] = set()
        for node in graph.nodes:
            is_new = "val" not in node.meta or self.calls.get(node.name) != _call(node)
            if node.op == "call_function" and (is_new or of_other_form & set(node.all_input_nodes)):
                old = node.meta.get("val")
                node.meta["val"] = _value(node)
                if not _same_form(old, node.meta["val"]):
                    of_other_form.add(node)
        return 1


def _placeholders(graph: Graph) -> tuple[str, ...]:
    return tuple(node.name for node in graph.find_nodes(op="placeholder"))


def _outputs(graph: Graph) -> int:
    found = [node for node in graph.nodes if node.op == "output"]
    if len(found) != 1:
        raise ValueError(f"the graph has {len(found)} output nodes, and must have one")
    outputs: Any = found[0].args[0] if found[0].args else ()
    return len(outputs) if isinstance(outputs, (tuple, list)) else 1


def _call(node: Node) -> str:
    return f"{node.target} {node.args} {node.kwargs}"


def _value(node: Node) -> Any:
    try:
        return computed(node.target, *node.args, **node.kwargs)
    except Exception as error:
        # Whatever an operator raises is the pass's fault.
        raise _BrokenNode(node, error) from error


def _same_form(old: Any, new: Any) -> bool:
    if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
        ours, theirs = ((t.shape, t.dtype, t.device, t.stride()) for t in (old, new))
        return ours == theirs
    return False


class _BrokenNode(Exception):
    def __init__(self, node: Node, error: Exception) -> None:
        super().__init__(str(error).splitlines()[0] if str(error) else type(error).__name__)
        self.node = node.name
