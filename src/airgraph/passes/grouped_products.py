"""Multiply with a matrix of int8 that has scales for groups of its numbers, where a program makes floats of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node

from airgraph.passes.analysis.few_rows import FLOATS, has_few_rows, lies_in_columns
from airgraph.passes.analysis.memory_use import MemoryUse
from airgraph.passes.analysis.unused import erase_unused
from airgraph.program.nodes import computed, is_cast
from airgraph.program.own_operators import GROUPED_MM
from airgraph.program.streams import stream_of

__all__ = ["multiply_by_groups"]

_aten = torch.ops.aten
# None of which copies.
_VIEWS = {
    *(_aten.view.default, _aten.t.default, _aten.transpose.int, _aten.permute.default),
    *(_aten.unsqueeze.default, _aten.squeeze.dim, _aten.squeeze.dims),
}


@dataclass(frozen=True, slots=True)
class _Weight:
    """numbers: n * k of int8. scales, zeros: n * groups; zeros: of int8, or None. All lie one after another."""

    numbers: Node
    scales: Node
    zeros: Node | None
    n: int
    k: int
    groups: int


def multiply_by_groups(gm: GraphModule) -> int:
    """Replace what makes floats of a grouped matrix, and the product of few rows with it, by one operator.

    Returns how many. For the CPU. Quantised weights reach a graph so: those of torchao's `IntxWeightOnlyConfig` and
    `Int8DynamicActivationIntxWeightConfig`.
    """
    use = MemoryUse(gm.graph)
    # All is asked before anything changes.
    found = [(node, weight) for node in gm.graph.nodes if (weight := _grouped(node, use)) is not None]
    for node, weight in found:
        product = _Product.of(node)
        assert product is not None
        with gm.graph.inserting_before(node):
            numbers = _shaped(gm, weight.numbers, weight.n, weight.k)
            scales = _shaped(gm, weight.scales, weight.n, weight.groups)
            zeros = None if weight.zeros is None else _shaped(gm, weight.zeros, weight.n, weight.groups)
            made = gm.graph.call_function(GROUPED_MM, (product.left, numbers, scales, zeros, product.bias))
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        gm.graph.erase_node(node)
        erase_unused(gm.graph, product.right)
    return len(found)


@dataclass(frozen=True, slots=True)
class _Product:
    left: Node
    right: Node
    bias: Node | None

    @classmethod
    def of(cls, node: Node) -> _Product | None:
        """None where a node is no product, or does more than add a bias."""
        match node.target, node.args:
            case _aten.mm.default, (Node() as left, Node() as right):
                return cls(left, right, None)
            case _aten.addmm.default, (Node() as bias, Node() as left, Node() as right) if not node.kwargs:
                return cls(left, right, bias)
        return None


def _shaped(gm: GraphModule, node: Node, rows: int, columns: int) -> Node:
    value = node.meta["val"]
    if tuple(value.shape) == (rows, columns):
        return node
    args = (node, [rows, columns])
    made = gm.graph.call_function(_aten.view.default, args)
    made.meta = {**node.meta, "val": computed(_aten.view.default, *args)}
    return made


def _grouped(node: Node, use: MemoryUse) -> _Weight | None:
    product = _Product.of(node)
    if product is None or not has_few_rows(product.left) or not lies_in_columns(product.right):
        return None
    right, bias = product.right, product.bias
    k, n = right.meta["val"].shape
    form = (torch.Size([n]), product.left.meta["val"].dtype)
    if bias is not None and (bias.meta["val"].shape, bias.meta["val"].dtype) != form:
        return None
    made = right
    while made.target in _VIEWS and len(made.users) == 1 and isinstance(made.args[0], Node):
        made = made.args[0]
    factors = _factors(made)
    if factors is None or right.meta["val"].stride() != (1, k) or stream_of(made) != stream_of(node):
        return None
    floats, scales = factors
    with_zeros = floats.target is _aten.sub.Tensor and not floats.kwargs and len(floats.users) == 1
    numbers = _before_cast(floats.args[0] if with_zeros else floats, made)
    zeros = _before_cast(floats.args[1], made) if with_zeros else None
    if numbers is None or (with_zeros and zeros is None):
        return None
    shape = tuple(made.meta["val"].shape)
    if tuple(numbers.meta["val"].shape) != shape:
        # One that stands for several.
        return None
    of_groups = [scales] if zeros is None else [scales, zeros]
    if any(tuple(each.meta["val"].shape) != (*shape[:-1], 1) for each in of_groups):
        return None
    groups = shape[1] if len(shape) == 3 else 1
    if shape not in ((n, groups, k // groups), (n, k)) or not all(
        each.meta["val"].is_contiguous() and use.is_there_before(each, node) for each in (numbers, *of_groups)
    ):
        return None
    return _Weight(numbers, scales, zeros, n, k, groups)


def _factors(node: Node) -> tuple[Node, Node] | None:
    """What numbers a node multiplies with scales, whichever comes first; it is needed for one thing."""
    if node.target is not _aten.mul.Tensor or len(node.users) != 1:
        return None
    first, second = node.args[:2]
    if not isinstance(first, Node) or not isinstance(second, Node):
        return None
    value = node.meta["val"]
    numbers, scales = (first, second) if first.meta["val"].shape == value.shape else (second, first)
    same = numbers.meta["val"].shape == value.shape and value.dtype in FLOATS
    dtypes = {each.meta["val"].dtype for each in (numbers, scales)}
    return (numbers, scales) if same and dtypes == {value.dtype} else None


def _before_cast(node: object, made: Node) -> Node | None:
    """The int8 that a node casts to the type of what is made."""
    if not isinstance(node, Node) or not is_cast(node):
        return None
    before = node.args[0]
    is_to_made = node.meta["val"].dtype is made.meta["val"].dtype
    return before if is_to_made and isinstance(before, Node) and before.meta["val"].dtype is torch.int8 else None
