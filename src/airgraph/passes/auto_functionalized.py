"""Call operators that write their arguments as themselves again.

AOTAutograd wraps a custom operator that mutates arguments into `auto_functionalized`, which returns new values instead.
Here the operator takes its place: on the arguments themselves where their old values are dead, else on copies.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops.auto_functionalize import (
    AsStridedViewInfo,
    SliceViewInfo,
    auto_functionalized,
    auto_functionalized_v2,
    get_mutable_args,
    read_view_information_from_args,
)
from torch.fx import GraphModule, Node

from airgraph.passes.aliases import Aliases

__all__ = ["call_mutating_operators"]

_aten = torch.ops.aten


def call_mutating_operators(gm: GraphModule, *, write_inputs: bool, write_intermediates: bool) -> int:
    """Replace every auto_functionalized call by the operator that it wraps; returns how many.

    write_inputs: an input whose new value is copied back into it is written in place if nobody needs the old value.
    write_intermediates: so is an intermediate. Otherwise the operator writes a copy.
    """
    changed = 0
    for node in list(gm.graph.nodes):
        if node.op != "call_function" or node.target not in (auto_functionalized, auto_functionalized_v2):
            continue
        _replace(gm, node, write_inputs, write_intermediates)
        changed += 1
    return changed


def _replace(gm: GraphModule, node: Node, write_inputs: bool, write_intermediates: bool) -> None:
    op: Any = node.args[0]
    names, types = get_mutable_args(op)
    kwargs = dict(node.kwargs)
    if node.target is auto_functionalized:
        bases: list[Any] = [kwargs[name] for name in names]
        views = None
    else:
        bases = list(kwargs.pop("_all_bases"))  # type: ignore[arg-type]
        views = read_view_information_from_args(names, types, kwargs, bases)
    results = _results(node, len(op._schema.returns))
    written: list[Any] = []
    with gm.graph.inserting_before(node):
        for position, base in enumerate(bases):
            if not isinstance(base, Node):
                # A list of tensors, or None, given to the first version.
                written.append(_copies(gm, base))
                continue
            new_value = results.get(len(_returned(op)) + position)
            in_place = _writable(node, base, bases, new_value, write_inputs, write_intermediates)
            written.append(base if in_place else _copy(gm, base))
        if views is None:
            arguments = dict(zip(names, written, strict=True))
        else:
            arguments = {name: _view(gm, info, written) for name, info in views.items()}
        call = gm.graph.call_function(op, (), {**kwargs, **arguments})
        call.meta = {**node.meta, "val": _value(node, op)}
    for position, item in results.items():
        returned = len(_returned(op))
        if position >= returned:
            new: Any = written[position - returned]
        elif len(op._schema.returns) == 1:
            new = call
        else:
            with gm.graph.inserting_before(node):
                new = gm.graph.call_function(operator.getitem, (call, position))
            new.meta = dict(item.meta)
        if isinstance(new, Node):
            item.replace_all_uses_with(new)
            for user in list(new.users):
                if user.target is _aten.copy_.default and user.args[0] is user.args[1]:
                    gm.graph.erase_node(user)
        gm.graph.erase_node(item)
    gm.graph.erase_node(node)


def _writable(
    node: Node, base: Node, bases: list[Any], new_value: Node | None, write_inputs: bool, write_intermediates: bool
) -> bool:
    """Whether an operator may write `base` itself, since nobody needs its old value afterwards."""
    aliases = Aliases(node.graph)
    roots = aliases.roots(base)
    others = [n for n in node.all_input_nodes if n is not base]
    if any(aliases.roots(other) & roots for other in others) or bases.count(base) > 1:
        return False
    if base.op == "placeholder":
        back = [user for user in base.users if user.target is _aten.copy_.default and user.args == (base, new_value)]
        if not write_inputs or new_value is None or len(back) != 1 or _handed_out(aliases, new_value, node, base):
            return False
        later = [u for u in aliases.users(base) if u is not back[0] and u is not node and _old_value(aliases, u, node)]
        return not later
    made_here = all(root.op == "call_function" for root in roots)
    users = [u for u in aliases.users(base) if u is not node and _old_value(aliases, u, node)]
    return write_intermediates and made_here and not users


def _old_value(aliases: Aliases, user: Node, node: Node) -> bool:
    """Whether a user of the memory comes after the operator; what takes the operator's results takes the new value."""
    return aliases.position(user) > aliases.position(node) and node not in user.all_input_nodes


def _handed_out(aliases: Aliases, new_value: Node, node: Node, base: Node) -> bool:
    """Whether an output lies in the memory of the new value, which would be the input's."""
    found, pending = set(), [new_value]
    while pending:
        each = pending.pop()
        for user in each.users:
            if user.op == "output":
                return True
            if user not in found and aliases.roots(user) & aliases.roots(new_value):
                found.add(user)
                pending.append(user)
    return False


def _results(node: Node, returns: int) -> dict[int, Node]:
    """The elements of the wrapped call that are used, by position; the same element may be taken once only."""
    found: dict[int, Node] = {}
    for user in list(node.users):
        position = user.args[1]
        assert isinstance(position, int)
        if position in found:
            user.replace_all_uses_with(found[position])
            node.graph.erase_node(user)
        else:
            found[position] = user
    return found


def _returned(op: Any) -> list[Any]:
    """What the wrapped call gives before the new values: the operator's results, or None once."""
    return list(op._schema.returns) or [None]


def _value(node: Node, op: Any) -> Any:
    values = node.meta["val"]
    returns = len(op._schema.returns)
    return None if returns == 0 else values[0] if returns == 1 else tuple(values[:returns])


def _copy(gm: GraphModule, base: Node) -> Node:
    copy = gm.graph.call_function(_aten.clone.default, (base,))
    copy.meta = {"val": base.meta["val"].clone()}
    return copy


def _copies(gm: GraphModule, value: Any) -> Any:
    return [_copy(gm, each) for each in value] if isinstance(value, (list, tuple)) else value


def _view(gm: GraphModule, info: Any, bases: list[Any]) -> Any:
    if info is None:
        return None
    if isinstance(info, list):
        return [_view(gm, each, bases) for each in info]
    base = bases[info.base_index]
    if isinstance(info, AsStridedViewInfo):
        return _made(gm, _aten.as_strided.default, (base, info.size, info.stride, info.storage_offset))
    if isinstance(info, SliceViewInfo):
        return _made(gm, _aten.slice.Tensor, (base, info.dim, info.start, info.end))
    return base


def _made(gm: GraphModule, op: Callable[..., Any], args: tuple[Any, ...]) -> Node:
    view = gm.graph.call_function(op, args)
    values = torch.fx.node.map_arg(args, lambda n: n.meta["val"])
    view.meta = {"val": op(*values)}
    return view
