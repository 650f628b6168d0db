"""Multiply with a matrix of int8 as it lies, where a program makes floats of all of it first."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from airgraph.passes.analysis.few_rows import has_few_rows, lies_in_columns
from airgraph.passes.analysis.memory_use import MemoryUse
from airgraph.program.own_operators import MIXED_MM
from airgraph.program.streams import stream_of

__all__ = ["multiply_as_stored"]

_aten = torch.ops.aten
_CASTS = {_aten._to_copy.default, torch.ops.prims.convert_element_type.default}


def multiply_as_stored(gm: GraphModule) -> int:
    """Replace a cast from int8 and the product of few rows with it by one operator; returns how many.

    A scale of each column is multiplied in, if that is all that becomes of the product, and the scale is there before
    it. For the CPU. Quantised weights reach a graph so (torchao's `Int8WeightOnlyConfig`).
    """
    use = MemoryUse(gm.graph)
    products = [node for node in gm.graph.nodes if node.target is _aten.mm.default and _takes_int8(node, use)]
    # All is asked before anything changes.
    found = [(node, _scaled(node, use)) for node in products]
    for node, scaled in found:
        left, cast = node.args[:2]
        assert isinstance(cast, Node)
        (right,) = cast.all_input_nodes
        replaced, scale = (node, None) if scaled is None else scaled
        # In the product's place: what it reads may be written after it.
        with gm.graph.inserting_before(node):
            product = gm.graph.call_function(MIXED_MM, (left, right, scale) if scale is not None else (left, right))
        product.meta = dict(replaced.meta)
        replaced.replace_all_uses_with(product)
        gm.graph.erase_node(replaced)
        if replaced is not node:
            gm.graph.erase_node(node)
        if not cast.users:
            gm.graph.erase_node(cast)
    return len(found)


def _takes_int8(node: Node, use: MemoryUse) -> bool:
    left, cast = node.args[:2]
    if not isinstance(left, Node) or not isinstance(cast, Node) or cast.target not in _CASTS or not has_few_rows(left):
        return False
    right = cast.args[0]
    return (
        isinstance(right, Node)
        and right.meta["val"].dtype is torch.int8
        and lies_in_columns(right)
        and stream_of(cast) == stream_of(node)
        and use.may_stand_for(right, cast)
    )


def _scaled(node: Node, use: MemoryUse) -> tuple[Node, Node] | None:
    """The product of a result and nothing else with one number a column, and these numbers."""
    if len(node.users) != 1:
        return None
    (user,) = node.users
    if user.target is not _aten.mul.Tensor or stream_of(user) != stream_of(node):
        return None
    (scale,) = [arg for arg in user.args if arg is not node] or [None]
    value = node.meta["val"]
    if not isinstance(scale, Node) or not use.is_there_before(scale, node) or user.meta["val"].dtype is not value.dtype:
        return None
    form = scale.meta["val"]
    is_row = form.dim() == 1 or (form.dim() == 2 and form.shape[0] == 1)
    return (user, scale) if is_row and form.dtype is value.dtype and form.shape[-1] == value.shape[1] else None
