"""Outputs that AOTAutograd makes anew, from the argument that they are views of."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from airgraph.program.nodes import computed, is_view
from airgraph.torch_internals import aot
from airgraph.torch_internals.symbolic_shapes import statically_known_true

__all__ = ["see_inputs_again"]


def see_inputs_again(gm: GraphModule) -> int:
    """Take outputs that are views of a mutated input's new value of that input itself; returns how many.

    Of such an output AOTAutograd's wrapper uses the form only: it makes the view once more, of the caller's tensor. So
    no memory of its own is needed, and with the value handed out no more the input can be written in place.
    Call inside the inference compiler, before anything else changes the graph.
    """
    known = aot.lowered()
    placeholders = gm.graph.find_nodes(op="placeholder")
    outputs: list[Any] = list(gm.graph.output_node().args[0])  # type: ignore[arg-type]
    # Inputs whose mutation is repeated outside the graph come first.
    if known.orders_effects or len(placeholders) != known.inputs:
        return 0
    seen = _Seen(gm)
    changed = 0
    for position, output in enumerate(known.outputs, known.repeated_mutations):
        if output.base is None or output.kind not in (aot.OutputKind.VIEW_OF_ARGUMENT, aot.OutputKind.ARGUMENT):
            continue
        again = seen.again(outputs[position], placeholders[output.base])
        if again is not None:
            outputs[position] = again
            changed += 1
    if changed:
        gm.graph.output_node().args = (tuple(outputs),)
        seen.remove_unused()
    return changed


class _Seen:
    """Views of new values of a graph's inputs, and the same views of those inputs."""

    def __init__(self, gm: GraphModule) -> None:
        self._graph = gm.graph
        self._written: dict[Node, set[Node]] = {}
        self._made: dict[tuple[Node, Node], Node] = {}
        for copy in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
            self._written.setdefault(copy.args[0], set()).update((copy, copy.args[1]))

    def again(self, output: object, source: Node) -> Node | None:
        """The view of `source` that an output is of its new value; None if it is not, or is one of `source`."""
        views: list[Node] = []
        node: Any = output
        while isinstance(node, Node) and node not in self._written.get(source, ()):
            if not is_view(node):
                return None
            views.append(node)
            node = node.args[0]
        if not isinstance(node, Node):
            return None
        seen = source
        try:
            values = _values(source, views)
        except RuntimeError:
            # Not possible with the strides that the input has.
            return None
        if not _same(values[-1], output.meta["val"], source.meta["val"]):  # type: ignore[attr-defined]
            return None
        for view, value in zip(reversed(views), values[1:], strict=True):
            seen = self._view(view, seen, value)
        return seen

    def remove_unused(self) -> None:
        for view, _ in reversed(self._made):
            if not view.users:
                self._graph.erase_node(view)

    def _view(self, view: Node, of: Node, value: Any) -> Node:
        key = (view, of)
        if key not in self._made:
            with self._graph.inserting_before(self._graph.output_node()):
                self._made[key] = self._graph.call_function(view.target, (of, *view.args[1:]), dict(view.kwargs))  # type: ignore[arg-type]
            self._made[key].meta = {**view.meta, "val": value}
        return self._made[key]


def _values(source: Node, views: list[Node]) -> list[Any]:
    """What the source and each of its views give; views: the last one first."""
    values = [source.meta["val"]]
    for view in reversed(views):
        values.append(computed(view.target, values[-1], *view.args[1:], **view.kwargs))
    return values


def _same(value: Any, old: Any, source: torch.Tensor) -> bool:
    """Whether a view has the shape of what it replaces, and its elements are those of its source, not other numbers."""
    return (
        len(value.shape) == len(old.shape)
        and all(statically_known_true(ours == theirs) for ours, theirs in zip(value.shape, old.shape, strict=True))
        and value.dtype == old.dtype == source.dtype
        and value.is_conj() == source.is_conj()
        and value.is_neg() == source.is_neg()
    )
