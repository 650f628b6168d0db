"""Compute no value of which only the form is taken, since it is overwritten before anybody reads it."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from airgraph.passes.analysis.in_place_forms import same_form
from airgraph.passes.analysis.input_chain import PARTS, is_whole
from airgraph.passes.analysis.memory_use import MemoryUse
from airgraph.passes.analysis.sizes import Sizes
from airgraph.program.nodes import is_view

__all__ = ["skip_overwritten_values"]

_aten = torch.ops.aten
# They take the form of their first argument and none of its values.
_WRITE_ALL = {
    _aten.copy.default,
    _aten.fill.Scalar,
    _aten.fill.Tensor,
    _aten.zero.default,
    _aten.bernoulli.p,
    _aten.bernoulli.Tensor,
    _aten.cauchy.default,
    _aten.exponential.default,
    _aten.geometric.default,
    _aten.log_normal.default,
    _aten.normal_functional.default,
    _aten.random.default,
    getattr(_aten.random, "from"),
    _aten.random.to,
    _aten.uniform.default,
}
_UNFILLED = {_aten.empty.memory_format, _aten.empty_strided.default, _aten.empty_like.default}


def skip_overwritten_values(gm: GraphModule) -> int:
    """Make no value that nobody reads before all of it is overwritten; returns how many operators were changed.

    Where an operator takes only the form of such a value, it gets an empty tensor, or becomes a clone of what it
    writes, if that has this form. The value itself is then unused, and for others to remove.
    """
    changed = 0
    sizes = Sizes(gm.graph)
    use = MemoryUse(gm.graph)
    empty: dict[Node, Node] = {}
    for node in list(gm.graph.nodes):
        if not _writes_all(node):
            continue
        old = node.args[0]
        if old not in empty and not _is_read_by_nobody(old, use, sizes):
            continue
        if _is_clone(node):
            node.target, node.args, node.kwargs = _aten.clone.default, (node.args[1],), {}
        else:
            if old not in empty:
                empty[old] = _empty(gm, old, sizes)
            node.args = (empty[old], *node.args[1:])
        changed += 1
    return changed


def _writes_all(node: Node) -> bool:
    return node.op == "call_function" and (node.target in _WRITE_ALL or (node.target in PARTS and is_whole(node)))


def _is_clone(node: Node) -> bool:
    """Whether what is copied has the form of what it is copied over, and its clone as well."""
    if node.target is not _aten.copy.default and node.target not in PARTS:
        return False
    new = node.args[1]
    return (
        isinstance(new, Node) and same_form(node, new) and new.meta["val"].clone().stride() == new.meta["val"].stride()
    )


def _is_read_by_nobody(old: object, use: MemoryUse, sizes: Sizes) -> bool:
    """Whether an operator made a value of which only the form is taken. Random numbers are drawn in any case."""
    if not isinstance(old, Node) or old.op != "call_function" or not isinstance(old.target, torch._ops.OpOverload):
        return False
    if old.target in _UNFILLED or is_view(old) or old.target._schema.is_mutable or use.handed_out(old):
        return False
    if torch.Tag.nondeterministic_seeded in old.target.tags or old.target.namespace not in ("aten", "prims"):
        return False
    value = old.meta["val"]
    if not isinstance(value, torch.Tensor) or value.is_conj() or value.is_neg():
        return False
    # An argument twice: also as what is written.
    only_form = all(_writes_all(user) and user.args.count(old) == 1 and user.args[0] is old for user in old.users)
    return only_form and sizes.known((*value.shape, *value.stride()))


def _empty(gm: GraphModule, old: Node, sizes: Sizes) -> Node:
    value = old.meta["val"]
    with gm.graph.inserting_before(old):
        shape, stride = (tuple(map(sizes.write, numbers)) for numbers in (value.shape, value.stride()))
        options = {"dtype": value.dtype, "device": value.device}
        made = gm.graph.call_function(_aten.empty_strided.default, (shape, stride), options)
    made.meta = {**old.meta, "val": value}
    return made
