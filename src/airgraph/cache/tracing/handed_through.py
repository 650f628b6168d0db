"""Outputs that a traced graph would only hand through: numbers that follow from sizes, arguments and views of them.

They are worked out at a call, without the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from airgraph.cache.format.result_spec import ArgumentLeaf, Leaf, NumberLeaf, ViewLeaf
from airgraph.errors import Unwritable
from airgraph.program.nodes import is_view
from airgraph.torch_internals import aot
from airgraph.torch_internals.symbolic_shapes import hint_of, settled_expression_of

__all__ = ["AnyLeaf", "Reduced", "without_handed_through"]

AnyLeaf = Leaf | NumberLeaf | ArgumentLeaf | ViewLeaf


@dataclass(frozen=True, slots=True)
class Reduced:
    """What is left of a graph. leaves: what each of its outputs was. positions: of its inputs that are left."""

    leaves: list[AnyLeaf]
    positions: list[int]


def without_handed_through(gm: GraphModule, path_of: Callable[[int], str]) -> Reduced:
    """Take integers, arguments and views of arguments out of a lowered graph's outputs, in place, and then those
    inputs and views that nothing needs. Call inside the inference compiler.

    A number that only counts something would else be part of each capture's key, and a view would be of a copy.
    path_of: of a tensor among the graph's inputs, by its position. Raises Unwritable for a view that is made by more
    than views.
    """
    output = gm.graph.output_node()
    placeholders = gm.graph.find_nodes(op="placeholder")
    leaves: list[AnyLeaf] = []
    kept: list[Any] = []
    views: dict[Any, ViewLeaf] = {}
    returned: Sequence[Any] = output.args[0]  # type: ignore[assignment]
    for each, known in zip(returned, aot.lowered().outputs, strict=True):
        value = each.meta.get("val") if isinstance(each, Node) else each
        if type(value) is int or isinstance(value, torch.SymInt):
            leaves.append(
                NumberLeaf.of(str(_size(value)), hint_of(value) if isinstance(value, torch.SymInt) else value)
            )
        elif known.base is not None and known.kind is aot.OutputKind.ARGUMENT:
            leaves.append(ArgumentLeaf(path_of(known.base)))
        elif known.base is not None and known.kind is aot.OutputKind.VIEW_OF_ARGUMENT:
            if each not in views:
                views[each] = _view(each, placeholders[known.base], path_of(known.base))
            leaves.append(views[each])
        else:
            leaves.append(Leaf(len(kept)))
            kept.append(each)
    output.args = (tuple(kept),)
    inputs = {node: position for position, node in enumerate(placeholders)}
    for node in reversed(gm.graph.nodes):
        is_number = isinstance(node.meta.get("val"), (int, torch.SymInt))
        if node is not output and not node.users and (is_number or is_view(node)):
            inputs.pop(node, None)
            gm.graph.erase_node(node)
    gm.recompile()
    return Reduced(leaves, list(inputs.values()))


def _view(made: Any, source: Node, path: str) -> ViewLeaf:
    node = made
    counts_from_argument = True
    while isinstance(node, Node) and node is not source:
        counts_from_argument &= not _counts_from_storage(node)
        node = node.args[0] if is_view(node) else None
    value, whole = made.meta["val"], source.meta["val"]
    if not counts_from_argument:
        raise Unwritable("an output is a view of an argument that counts from the start of its storage")
    if node is not source or value.dtype is not whole.dtype or _bits(value) != _bits(whole):
        raise Unwritable("an output is a view of an argument that is made by more than sizes and strides")
    shape, stride = tuple(map(_size, value.shape)), tuple(map(_size, value.stride()))
    return ViewLeaf(path, shape, stride, _size(value.storage_offset() - whole.storage_offset()))


def _counts_from_storage(node: Node) -> bool:
    if node.target is not torch.ops.aten.as_strided.default:
        return False
    return (node.args[3] if len(node.args) > 3 else node.kwargs.get("storage_offset")) is not None


def _bits(value: torch.Tensor) -> tuple[bool, bool]:
    return value.is_conj(), value.is_neg()


def _size(size: Any) -> int | str:
    return size if isinstance(size, int) else str(settled_expression_of(size))
