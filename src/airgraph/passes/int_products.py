"""Multiply whole numbers of int8 as they are, where a program makes them unsigned and takes that back afterwards."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from airgraph.passes.analysis.few_rows import MOST_ROWS
from airgraph.passes.analysis.memory_use import MemoryUse
from airgraph.passes.analysis.unused import erase_unused
from airgraph.program.streams import stream_of

__all__ = ["multiply_signed"]

_aten = torch.ops.aten
# What makes a number of int8 one of uint8.
_SHIFT = 128


def multiply_signed(gm: GraphModule) -> int:
    """Replace `_int_mm(uint8(x + 128), weight) - 128 * weight.sum(0)` by `_int_mm(x, weight)`, of few rows.

    The same in whole numbers, and the weight is read once, not twice. Returns how many. For the CPU. torchao's
    `Int8DynamicActivationInt8WeightConfig` reaches a graph so on processors with VNNI and without AMX.
    """
    use = MemoryUse(gm.graph)
    # All is asked before anything changes.
    products = [node for node in gm.graph.nodes if node.target is _aten._int_mm.default]
    found = [each for node in products if (each := _taken_back(node, use)) is not None]
    for difference, signed in found:
        product = difference.args[0]
        assert isinstance(product, Node)
        with gm.graph.inserting_before(product):
            made = gm.graph.call_function(_aten._int_mm.default, (signed, product.args[1]))
        made.meta = dict(product.meta)
        difference.replace_all_uses_with(made)
        erase_unused(gm.graph, difference)
    return len(found)


def _taken_back(product: Node, use: MemoryUse) -> tuple[Node, Node] | None:
    """What takes the shift of a product back, and what is shifted."""
    unsigned, weight = product.args[:2]
    if not isinstance(weight, Node) or len(product.users) != 1:
        return None
    signed, (difference,) = _before_shift(unsigned), product.users
    is_taken_back = (
        difference.target is _aten.sub.Tensor
        and not difference.kwargs
        and difference.args[0] is product
        and _shift_of(difference.args[1]) is weight
    )
    if signed is None or not is_taken_back or stream_of(difference) != stream_of(product):
        return None
    # What is summed is what is multiplied.
    return (difference, signed) if all(use.is_there_before(each, product) for each in (signed, weight)) else None


def _before_shift(node: object) -> Node | None:
    """x of int8 and few rows, where this is `(x.int() + 128).to(uint8)`."""
    shifted = _cast(node, torch.uint8)
    if shifted is None or shifted.target is not _aten.add.Tensor or shifted.kwargs or not _is_shift(shifted.args[1]):
        return None
    signed = _cast(shifted.args[0], torch.int32)
    value = None if signed is None else signed.meta["val"]
    if value is None or value.dtype is not torch.int8 or value.device.type != "cpu":
        return None
    rows = value.shape[0]
    return signed if isinstance(rows, int) and 1 <= rows <= MOST_ROWS else None


def _is_shift(number: object) -> bool:
    """A float of that value makes floats of what it meets."""
    return type(number) is int and number == _SHIFT


def _cast(node: object, dtype: torch.dtype) -> Node | None:
    """What a node casts to this type."""
    if not isinstance(node, Node) or node.target is not _aten._to_copy.default or node.kwargs != {"dtype": dtype}:
        return None
    given = node.args[0]
    return given if isinstance(given, Node) else None


def _shift_of(node: object) -> Node | None:
    """The matrix, where this is 128 times the sums of its columns."""
    if not isinstance(node, Node) or node.target is not _aten.mul.Tensor or not _is_shift(node.args[1]):
        return None
    sums = node.args[0]
    if not isinstance(sums, Node) or sums.target is not _aten.sum.dim_IntList:
        return None
    is_of_columns = list(sums.args[1:]) == [[0], True] and sums.kwargs == {"dtype": torch.int32}
    matrix = sums.args[0]
    return matrix if is_of_columns and isinstance(matrix, Node) else None
