"""Call operators that write their arguments as themselves again.

AOTAutograd wraps a custom operator that mutates arguments into `auto_functionalized`, which returns new values instead.
Here the operator takes its place and writes copies; the reinplace passes remove those that are not needed.
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

__all__ = ["call_mutating_operators"]

_aten = torch.ops.aten


def call_mutating_operators(gm: GraphModule) -> int:
    """Replace every auto_functionalized call by the operator that it wraps, on copies; returns how many."""
    changed = 0
    for node in list(gm.graph.nodes):
        if node.op != "call_function" or node.target not in (auto_functionalized, auto_functionalized_v2):
            continue
        _replace(gm, node)
        changed += 1
    return changed


def _replace(gm: GraphModule, node: Node) -> None:
    op: Any = node.args[0]
    names, types = get_mutable_args(op)
    kwargs = dict(node.kwargs)
    if node.target is auto_functionalized:
        bases: list[Any] = [kwargs[name] for name in names]
        views = None
    else:
        bases = list(kwargs.pop("_all_bases"))  # type: ignore[arg-type]
        views = read_view_information_from_args(names, types, kwargs, bases)
    results = _results(node)
    with gm.graph.inserting_before(node):
        written = [_copy(gm, base) for base in bases]
        if views is None:
            arguments = dict(zip(names, written, strict=True))
        else:
            arguments = {name: _view(gm, info, written) for name, info in views.items()}
        call = gm.graph.call_function(op, (), {**kwargs, **arguments})
        call.meta = {**node.meta, "val": _value(node, op)}
    returned = len(_returned(op))
    for position, item in results.items():
        if position >= returned:
            _replace_by(item, written[position - returned])
        elif len(op._schema.returns) == 1:
            _replace_by(item, call)
        else:
            with gm.graph.inserting_before(node):
                new = gm.graph.call_function(operator.getitem, (call, position))
            new.meta = dict(item.meta)
            _replace_by(item, new)
    gm.graph.erase_node(node)


def _replace_by(item: Node, new: Any) -> None:
    """new: a node, or a list of them, of which the users of `item` take elements."""
    if isinstance(new, Node):
        item.replace_all_uses_with(new)
    elif isinstance(new, (list, tuple)):
        for user in list(item.users):
            position: Any = user.args[1]
            _replace_by(user, new[position])
    item.graph.erase_node(item)


def _results(node: Node) -> dict[int, Node]:
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


def _copy(gm: GraphModule, base: Any) -> Any:
    """A copy of a tensor, or of each in a list; None is none."""
    if isinstance(base, (list, tuple)):
        return [_copy(gm, each) for each in base]
    if not isinstance(base, Node):
        return base
    copy = gm.graph.call_function(_aten.clone.default, (base,))
    copy.meta = {"val": base.meta["val"].clone()}
    return copy


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
