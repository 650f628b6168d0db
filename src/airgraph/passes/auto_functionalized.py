"""Call operators that write their arguments as themselves again.

AOTAutograd wraps a custom operator that mutates arguments into `auto_functionalized`, which returns new values instead.
Here the operator takes its place and writes copies; the reinplace passes remove those that are not needed.
"""

from __future__ import annotations

import functools
import logging
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._higher_order_ops.auto_functionalize import (
    AsStridedViewInfo,
    SliceViewInfo,
    auto_functionalized,
    auto_functionalized_v2,
    get_mutable_args,
    read_view_information_from_args,
    try_use_slice,
)
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from airgraph.passes.strided_views import Step, plain_views

__all__ = ["call_mutating_operators"]

log = logging.getLogger(__name__)

_aten = torch.ops.aten


# Of copies, the form of what they are copies of, by whose strides views are known.
_Forms = dict[Node, torch.Tensor]


def call_mutating_operators(gm: GraphModule) -> int:
    """Replace every auto_functionalized call by the operator that it wraps, on copies; returns how many.

    One that writes a view which cannot be taken of a copy stays, and the log says so.
    """
    changed = 0
    forms: _Forms = {}
    for node in list(gm.graph.nodes):
        if node.op != "call_function" or node.target not in (auto_functionalized, auto_functionalized_v2):
            continue
        try:
            _replace(gm, node, forms)
        except _CannotBeSeen as reason:
            log.debug("%s stays: %s", node.name, reason)
            continue
        changed += 1
    return changed


def _replace(gm: GraphModule, node: Node, forms: _Forms) -> None:
    op: Any = node.args[0]
    names, types = get_mutable_args(op)
    kwargs = dict(node.kwargs)
    if node.target is auto_functionalized:
        bases: list[Any] = [kwargs[name] for name in names]
        recipes = None
    else:
        bases = list(kwargs.pop("_all_bases"))  # type: ignore[arg-type]
        infos = read_view_information_from_args(names, types, kwargs, bases)
        recipes = {name: _recipe(info, bases, forms) for name, info in infos.items()}
    results = _results(node)
    with gm.graph.inserting_before(node):
        written = [_copy(gm, base, forms) for base in bases]
        if recipes is None:
            arguments = dict(zip(names, written, strict=True))
        else:
            arguments = {name: _follow(gm, recipe, written) for name, recipe in recipes.items()}
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


def _copy(gm: GraphModule, base: Any, forms: _Forms) -> Any:
    """A copy of a tensor, or of each in a list; None is none."""
    if isinstance(base, (list, tuple)):
        return [_copy(gm, each, forms) for each in base]
    if not isinstance(base, Node):
        return base
    copy = gm.graph.call_function(_aten.clone.default, (base,))
    forms[copy] = _form(base, forms)
    copy.meta = {"val": base.meta["val"].clone()}
    return copy


@dataclass(frozen=True, slots=True)
class _View:
    """Base `index`, seen through these operators."""

    index: int
    steps: tuple[Step, ...]


def _recipe(info: Any, bases: list[Node], forms: _Forms) -> Any:
    """How to see an argument again: a _View, a list of recipes, or None. Raises _CannotBeSeen."""
    if info is None:
        return None
    if isinstance(info, list):
        return [_recipe(each, bases, forms) for each in info]
    steps: list[Step] = []
    if isinstance(info, AsStridedViewInfo):
        steps = _strided(_form(bases[info.base_index], forms), info)
    elif isinstance(info, SliceViewInfo):
        begins = _first_index(_form(bases[info.base_index], forms), info.dim)
        steps = [(_aten.slice.Tensor, (info.dim, info.start - begins, info.end - begins))]
    return _View(info.base_index, tuple(steps))


def _form(base: Node, forms: _Forms) -> torch.Tensor:
    return forms[base] if base in forms else base.meta["val"]


def _strided(form: torch.Tensor, info: AsStridedViewInfo) -> list[Step]:
    """Size, stride and offset are those in the storage of a tensor of this form; its copy has another."""
    steps = plain_views(form, info.size, info.stride, info.storage_offset)
    if steps is not None:
        return steps
    same_strides = zip(form.clone().stride(), form.stride(), strict=True)
    if not all(statically_known_true(ours == theirs) for ours, theirs in same_strides):
        raise _CannotBeSeen("a view of a tensor that is not dense is known by its strides only")
    return [(_aten.as_strided.default, (info.size, info.stride, info.storage_offset - form.storage_offset()))]


def _first_index(form: torch.Tensor, dim: Any) -> Any:
    """What a slice of a tensor of this form calls the first index of a dimension."""
    return form.storage_offset() // form.stride(dim) if _slices_count_storage() else 0


@functools.cache
def _slices_count_storage() -> bool:
    """Whether torch counts slices from the start of the storage, not of the tensor, as 2.13 does by mistake."""
    storage = torch.empty(6, device="meta")
    return try_use_slice(storage[2:], storage[3:5]) == (0, 3, 5)


class _CannotBeSeen(Exception):
    pass


def _follow(gm: GraphModule, recipe: Any, bases: list[Any]) -> Any:
    if recipe is None:
        return None
    if isinstance(recipe, list):
        return [_follow(gm, each, bases) for each in recipe]
    view = bases[recipe.index]
    for op, args in recipe.steps:
        view = _made(gm, op, (view, *args))
    return view


def _made(gm: GraphModule, op: Callable[..., Any], args: tuple[Any, ...]) -> Node:
    view = gm.graph.call_function(op, args)
    values = torch.fx.node.map_arg(args, lambda n: n.meta["val"])
    view.meta = {"val": op(*values)}
    return view
