"""Undo the functionalization of input mutations.

AOTAutograd turns `cache.index_copy_(...)` into `new = index_copy(cache, ...)` with `cache.copy_(new)` at the end of the
graph: two copies of the whole cache a call. Where nothing reads the old value after `new` is made, the operator runs in
place and the copy goes.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from airgraph.passes.aliases import Aliases
from airgraph.passes.in_place_forms import in_place_form, same_form, same_shape_and_dtype
from airgraph.passes.memory_use import MemoryUse

__all__ = ["reinplace_mutated_inputs"]

log = logging.getLogger(__name__)

_aten = torch.ops.aten
# What puts a value into a part of a tensor, and the view that is this part; both take the same arguments after it.
_SCATTERS: dict[Any, Any] = {
    _aten.slice_scatter.default: _aten.slice.Tensor,
    _aten.select_scatter.default: _aten.select.int,
    _aten.diagonal_scatter.default: _aten.diagonal.default,
}


def reinplace_mutated_inputs(gm: GraphModule) -> int:
    """Replace `input.copy_(op(input, ...))` by `op_(input, ...)`, also for chains of such operators.

    Operators that put a value into a part of a tensor (slice_scatter and its kin) become a copy into that part.
    A chain is left alone, and the log says why, if an old value, or a view of one, is read after the operator that
    replaces it, if one of the operator's other arguments shares its memory, or if the new value is an output. Returns
    the number of copies removed.
    """
    use = MemoryUse(gm.graph)
    removed = 0
    for copy in list(gm.graph.find_nodes(op="call_function", target=_aten.copy_.default)):
        target, value = copy.args[0], copy.args[1]
        if not (isinstance(target, Node) and target.op == "placeholder"):
            continue
        chain = _chain(target, value) if not copy.users else "the copy itself is read"
        obstacle = chain if isinstance(chain, str) else _obstacle(target, chain, copy, use.aliases)
        if isinstance(chain, str) or obstacle is not None:
            log.debug("the copy into input %s stays: %s", target.name, obstacle)
            copy.meta["why_kept"] = obstacle
            continue
        for link in chain:
            _write_in_place(gm, target, link, use)
            use.aliases.join(link.node, target)
        gm.graph.erase_node(copy)
        removed += 1
        if any(link.in_place is None for link in chain):
            # With the copies into parts, which are new nodes.
            use = MemoryUse(gm.graph)
    return removed


@dataclass(frozen=True, slots=True)
class _Link:
    """An operator that makes a new value of the input. in_place: its form that writes; None: a copy into a part."""

    node: Node
    in_place: torch._ops.OpOverload | None


def _chain(target: Node, value: object) -> list[_Link] | str:
    """The operators that lead from the input to its new value, first to last; what is wrong if there is no chain."""
    chain: list[_Link] = []
    while value is not target:
        if not isinstance(value, Node) or value.op != "call_function" or not value.args:
            return "its new value is not computed from the old one"
        op = value.target
        in_place = in_place_form(op) if isinstance(op, torch._ops.OpOverload) else None
        if in_place is None and op not in _SCATTERS:
            return f"{value.name} ({op}) has no in-place form"
        base = value.args[0]
        if (
            not isinstance(base, Node)
            or not same_shape_and_dtype(value, target)
            or not same_shape_and_dtype(base, target)
        ):
            return f"shape or dtype of {value.name} differ from the input's"
        chain.append(_Link(value, in_place))
        value = base
    return chain[::-1] or "the input is copied to itself"


def _obstacle(target: Node, chain: list[_Link], copy: Node, aliases: Aliases) -> str | None:
    old = target
    for link in chain:
        node = link.node
        for user in aliases.users(old):
            if user in (copy, node):
                continue
            if aliases.position(user) > aliases.position(node):
                return f"{user.name} takes the old value after {node.name}"
        others: list[Node] = []
        torch.fx.node.map_arg((node.args[1:], node.kwargs), others.append)
        for other in others:
            if aliases.roots(other) & aliases.roots(old):
                return f"{other.name}, another argument of {node.name}, may share the input's memory"
        old = node
    for link in chain:
        # An output must be memory of its own, not the input.
        if any(user.op == "output" for user in aliases.users(link.node)):
            return f"{link.node.name} is an output, which needs memory of its own"
    return None


def _write_in_place(gm: GraphModule, target: Node, link: _Link, use: MemoryUse) -> None:
    node = link.node
    if link.in_place is not None:
        node.target = link.in_place
        node.args = (target, *node.args[1:])
        if not same_form(node, target):
            # A new value may have had other strides.
            node.meta["val"] = target.meta["val"]
    else:
        _copy_into_part(gm, target, node, use)
    node.replace_all_uses_with(target, delete_user_cb=lambda user: user is not node)
    if link.in_place is None:
        gm.graph.erase_node(node)


def _copy_into_part(gm: GraphModule, target: Node, node: Node, use: MemoryUse) -> None:
    value: Any = node.args[1]
    with gm.graph.inserting_before(node):
        part = gm.graph.call_function(_SCATTERS[node.target], (target, *node.args[2:]), dict(node.kwargs))
        written = gm.graph.call_function(_aten.copy_.default, (part, _uncopied(value, target, use)))
    part.meta = {**node.meta, "val": _value_of(part)}
    written.meta = dict(part.meta)
    node.args = (*node.args[:1], target, *node.args[2:])
    for unused in (value, value.args[0] if value.target is _aten.copy.default else value):
        if not unused.users and unused.op == "call_function":
            gm.graph.erase_node(unused)


def _uncopied(value: Node, target: Node, use: MemoryUse) -> Any:
    """What a functional copy, made only to be put into a part of the input, is a copy of."""
    if value.target is not _aten.copy.default or len(value.users) > 1:
        return value
    source = value.args[1]
    if not isinstance(source, Node) or use.aliases.roots(source) & use.aliases.roots(target):
        return value
    return value if use.written(source, after=value) else source


def _value_of(node: Node) -> Any:
    """What a view gives, from the fake values of its arguments."""
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    return node.target(*args, **kwargs)  # type: ignore[operator]
