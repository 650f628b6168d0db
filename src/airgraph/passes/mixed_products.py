"""Multiply with a matrix of int8 as it lies, where a program makes floats of all of it first."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from airgraph.passes.analysis.few_rows import FLOATS, has_few_rows, lies_in_columns
from airgraph.passes.analysis.memory_use import MemoryUse
from airgraph.passes.analysis.unused import erase_unused
from airgraph.program.nodes import computed, is_cast
from airgraph.program.own_operators import MIXED_MM
from airgraph.program.streams import stream_of

__all__ = ["multiply_as_stored"]

_aten = torch.ops.aten
_SHAPES = {
    *(_aten.view.default, _aten._unsafe_view.default, _aten.reshape.default, _aten.unsqueeze.default),
    *(_aten.squeeze.default, _aten.squeeze.dim, _aten.squeeze.dims, _aten.t.default, _aten.transpose.int),
}


def multiply_as_stored(gm: GraphModule) -> int:
    """Replace a cast from int8 and the product of few rows with it by one operator; returns how many.

    A scale of each column is multiplied in, if that is all that becomes of the product, and the scale is there before
    it. For the CPU. Quantised weights reach a graph so (torchao's `Int8WeightOnlyConfig`).
    """
    use = MemoryUse(gm.graph)
    products = [node for node in gm.graph.nodes if node.target is _aten.mm.default and _takes_int8(node, use)]
    # All is asked before anything changes.
    found = [(node, _scaled(node, use)) for node in products]
    made: dict[Node, Node] = {}
    for node, scaled in found:
        left, floats = node.args[:2]
        assert isinstance(floats, Node)
        replaced, scale = (node, None) if scaled is None else scaled
        # In the product's place: what it reads may be written after it.
        with gm.graph.inserting_before(node):
            right = _as_stored(gm, floats)
            args = (left, right) if scale is None else (left, right, _as_row(gm, made.get(scale, scale)))
            product = gm.graph.call_function(MIXED_MM, args)
        product.meta = dict(replaced.meta)
        replaced_args = [each for each in replaced.all_input_nodes if each is not node]
        replaced.replace_all_uses_with(product)
        # A scale of another one, perhaps.
        made[node] = made[replaced] = product
        gm.graph.erase_node(replaced)
        if replaced is not node:
            gm.graph.erase_node(node)
            for factor in replaced_args:
                erase_unused(gm.graph, factor)
        erase_unused(gm.graph, floats)
    return len(found)


def _as_row(gm: GraphModule, scale: Node) -> Node:
    """The same numbers in one dimension, where nodes are inserted at the moment."""
    value = scale.meta["val"]
    if value.dim() == 1:
        return scale
    args = (scale, [value.numel()])
    row = gm.graph.call_function(_aten.view.default, args)
    row.meta = {**scale.meta, "val": computed(_aten.view.default, *args)}
    return row


def _takes_int8(node: Node, use: MemoryUse) -> bool:
    left, floats = node.args[:2]
    if not isinstance(left, Node) or not isinstance(floats, Node) or not has_few_rows(left):
        return False
    cast = _cast_of(floats)
    right = cast.args[0] if cast is not None else None
    if cast is None or not isinstance(right, Node) or right.meta["val"].dtype is not torch.int8:
        return False
    if stream_of(cast) != stream_of(node) or not lies_in_columns(floats):
        return False
    if floats is cast:
        return lies_in_columns(right) and use.may_stand_for(right, cast)
    return right.meta["val"].is_contiguous() and use.is_there_before(right, node)


def _cast_of(floats: Node) -> Node | None:
    """The cast that a matrix is, or is the transpose of."""
    made: object = floats.args[0] if floats.target is _aten.t.default else floats
    return made if isinstance(made, Node) and is_cast(made) else None


def _as_stored(gm: GraphModule, floats: Node) -> Node:
    """What was cast, transposed where the cast was, where nodes are inserted at the moment."""
    cast = _cast_of(floats)
    assert cast is not None
    (right,) = cast.all_input_nodes
    if floats is cast:
        return right
    turned = gm.graph.call_function(_aten.t.default, (right,))
    turned.meta = {**right.meta, "val": computed(_aten.t.default, right)}
    return turned


def _scaled(node: Node, use: MemoryUse) -> tuple[Node, Node] | None:
    """The product of a result and nothing else with one number a column, and where these numbers come from."""
    if len(node.users) != 1:
        return None
    (user,) = node.users
    if user.target is not _aten.mul.Tensor or stream_of(user) != stream_of(node):
        return None
    (scale,) = [arg for arg in user.args if arg is not node] or [None]
    value = node.meta["val"]
    if not isinstance(scale, Node) or user.meta["val"].dtype is not value.dtype:
        return None
    form = scale.meta["val"]
    is_row = form.dim() == 1 or (form.dim() == 2 and form.shape[0] == 1)
    if not is_row or form.dtype is not value.dtype or form.shape[-1] != value.shape[1]:
        return None
    source = _before_casts(scale)
    return next(((user, each) for each in (scale, source) if use.is_there_before(each, node)), None)


def _before_casts(scale: Node) -> Node:
    """What a row of numbers is made of by nothing but other shapes, and casts that the product need not repeat.

    Those that lose nothing, and one to the product's own type that loses digits only, which the result loses after it.
    """
    node, product = scale, scale.meta["val"].dtype
    while is_cast(node) or node.target in _SHAPES:
        before = node.args[0]
        if not isinstance(before, Node) or not _is_row_of_floats(before, scale.meta["val"].numel()):
            break
        made, given = node.meta["val"].dtype, before.meta["val"].dtype
        loses_nothing = torch.promote_types(given, made) is made
        # bfloat16 reaches as far as float32; float16 would lose numbers, not digits.
        if not loses_nothing and not (made is product is torch.bfloat16):
            break
        node = before
    return node


def _is_row_of_floats(node: Node, count: int) -> bool:
    """Whether these are all its elements, one after the other, and in one dimension."""
    value = node.meta["val"]
    return (
        value.dtype in FLOATS
        and value.is_contiguous()
        and list(filter(lambda size: size != 1, value.shape)) in ([count], [])
    )
