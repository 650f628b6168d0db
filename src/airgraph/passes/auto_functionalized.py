"""Call operators that write their arguments as themselves again.

AOTAutograd wraps a custom operator that mutates arguments into `auto_functionalized`, which returns new values instead.
Here the operator takes its place and writes copies; the reinplace passes remove those that are not needed.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from airgraph.passes.analysis.sizes import Sizes
from airgraph.passes.analysis.strided_views import Step, plain_views
from airgraph.program.nodes import computed, is_view, nodes_in, notes
from airgraph.program.trees import leaves, mapped
from airgraph.torch_internals.functionalized import (
    AsStridedViewInfo,
    SliceViewInfo,
    auto_functionalized,
    auto_functionalized_v2,
    get_mutable_args,
    read_view_information_from_args,
)
from airgraph.torch_internals.symbolic_shapes import statically_known_true
from airgraph.torch_internals.versions import slices_count_storage

__all__ = ["call_mutating_operators", "note_shared_arguments"]

log = logging.getLogger(__name__)

_aten = torch.ops.aten
_WRAPPERS = (auto_functionalized, auto_functionalized_v2)


def note_shared_arguments(gm: GraphModule) -> None:
    """Remember which arguments lie in memory that their operator writes, as the user gave them.

    To be called before any pass: afterwards a copy may have given way to what it is a copy of, and is not that memory.
    """
    for node in _wrapped_calls(gm):
        _, bases, arguments = _taken_apart(node)
        shared = [name for name, value in arguments.items() if any(_lies_in(each, bases) for each in nodes_in(value))]
        if shared:
            notes(node)["shared_arguments"] = tuple(shared)


def call_mutating_operators(gm: GraphModule) -> int:
    """Replace every auto_functionalized call by the operator that it wraps, on copies; returns how many.

    An argument that lies in memory which is written lies in the copy, so that the operator sees what it would in eager.
    A call that writes a view which cannot be taken of a copy stays, and the log says so.
    """
    changed = 0
    replacing = _Replacing(gm)
    for node in _wrapped_calls(gm):
        try:
            replacing.replace(node)
        except _CannotBeSeen as reason:
            log.debug("%s stays: %s", node.name, reason)
            continue
        changed += 1
    return changed


def _wrapped_calls(gm: GraphModule) -> list[Node]:
    return [node for wrapper in _WRAPPERS for node in gm.graph.find_nodes(op="call_function", target=wrapper)]


def _taken_apart(node: Node) -> tuple[dict[str, Any] | None, list[Any], dict[str, Any]]:
    """How a call sees each argument that it writes, of which values it does, and its other arguments.

    Without views, where it names the values themselves, there is None for the first; then they are in order.
    """
    op: Any = node.args[0]
    names, types = get_mutable_args(op)
    arguments = dict(node.kwargs)
    if node.target is auto_functionalized:
        return None, [arguments.pop(name) for name in names], arguments
    bases = list(arguments.pop("_all_bases"))  # type: ignore[arg-type]
    return read_view_information_from_args(names, types, arguments, bases), bases, arguments


def _lies_in(node: Node, bases: Sequence[Any]) -> Node | None:
    """The one of these that a node is, or is a view of."""
    written = nodes_in(bases)
    seen: Any = node
    while isinstance(seen, Node) and seen not in written and is_view(seen):
        seen = seen.args[0]
    return seen if seen in written else None


class _Replacing:
    """Replaces the calls of one graph. It knows copies by the form of what they are of: so views are written."""

    def __init__(self, gm: GraphModule) -> None:
        self._graph = gm.graph
        self._forms: dict[Node, torch.Tensor] = {}
        self._sizes = Sizes(gm.graph)
        # What new nodes have of the call that they stand for: its stream and source line among it.
        self._origin: dict[str, Any] = {}

    def replace(self, node: Node) -> None:
        """Raises _CannotBeSeen, with nothing changed."""
        op: Any = node.args[0]
        infos, bases, others = _taken_apart(node)
        recipes = None if infos is None else {name: self._recipe(info, bases) for name, info in infos.items()}
        results = _results(node)
        self._origin = node.meta
        copies: dict[Node, Node] = {}
        with self._graph.inserting_before(node):
            written = [self._copy(base, copies) for base in bases]
            if recipes is None:
                arguments = dict(zip(get_mutable_args(op)[0], written, strict=True))
            else:
                arguments = {name: self._follow(recipe, written) for name, recipe in recipes.items()}
            for name in notes(node).get("shared_arguments", ()):
                others[name] = torch.fx.node.map_arg(others.get(name), lambda n: self._in_copy(n, bases, copies))
            given = {**others, **arguments}
            # In the order in which they stood.
            call = self._graph.call_function(
                op, (), {name: given[name] for name in (*node.kwargs, *given) if name in given}
            )
            call.meta = {**node.meta, "val": _value(node, op)}
        returned = len(_returned(op))
        for position, item in results.items():
            if position >= returned:
                _replace_by(item, written[position - returned])
            elif len(op._schema.returns) == 1:
                _replace_by(item, call)
            else:
                with self._graph.inserting_before(node):
                    new = self._graph.call_function(operator.getitem, (call, position))
                new.meta = dict(item.meta)
                _replace_by(item, new)
        self._graph.erase_node(node)

    def _copy(self, base: Any, copies: dict[Node, Node]) -> Any:
        """A copy of a tensor, or of each in a list; None is none. Of one tensor there is one copy."""
        if isinstance(base, (list, tuple)):
            return [self._copy(each, copies) for each in base]
        if not isinstance(base, Node):
            return base
        if base not in copies:
            copies[base] = copy = self._made(_aten.clone.default, (base,), {})
            self._forms[copy] = self._form(base)
        return copies[base]

    def _in_copy(self, node: Node, bases: list[Any], copies: dict[Node, Node]) -> Node:
        """An argument as it is where what is written was copied to."""
        if _lies_in(node, bases) is None:
            return node
        if node in copies:
            return copies[node]
        return self._made(node.target, (self._in_copy(node.args[0], bases, copies), *node.args[1:]), node.kwargs)  # type: ignore[arg-type]

    def _recipe(self, info: Any, bases: list[Node]) -> Any:
        """How to see an argument again: a _View, a list of recipes, or None. Raises _CannotBeSeen."""
        if info is None:
            return None
        if isinstance(info, list):
            return [self._recipe(each, bases) for each in info]
        steps: list[Step] = []
        if isinstance(info, AsStridedViewInfo):
            steps = self._strided(self._form(bases[info.base_index]), info)
        elif isinstance(info, SliceViewInfo):
            begins = _first_index(self._form(bases[info.base_index]), info.dim)
            steps = [(_aten.slice.Tensor, (info.dim, info.start - begins, info.end - begins))]
        return _View(info.base_index, tuple(steps))

    def _form(self, base: Node) -> torch.Tensor:
        return self._forms[base] if base in self._forms else base.meta["val"]

    def _strided(self, form: torch.Tensor, info: Any) -> list[Step]:
        """Size, stride and offset are those in the storage of a tensor of this form; its copy has another."""
        where = (info.size, info.stride, info.storage_offset)
        size, stride, offset = torch.fx.node.map_arg(where, lambda n: n.meta["val"])
        steps = plain_views(form, size, stride, offset)
        if steps is not None and self._sizes.known(leaves([args for _, args in steps])):
            return steps
        same_strides = zip(form.clone().stride(), form.stride(), strict=True)
        if not all(statically_known_true(ours == theirs) for ours, theirs in same_strides):
            raise _CannotBeSeen("a view of a tensor that is not dense is known by its strides only")
        return [(_aten.as_strided.default, (info.size, info.stride, info.storage_offset - form.storage_offset()))]

    def _follow(self, recipe: Any, bases: list[Any]) -> Any:
        if recipe is None:
            return None
        if isinstance(recipe, list):
            return [self._follow(each, bases) for each in recipe]
        view = bases[recipe.index]
        for op, args in recipe.steps:
            view = self._made(op, (view, *self._written(args)), {})
        return view

    def _written(self, value: Any) -> Any:
        """Arguments of an operator, with symbols as nodes that compute them."""
        return mapped(torch.SymInt, self._sizes.write, value)

    def _made(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
        view = self._graph.call_function(op, args, kwargs)
        view.meta = {**self._origin, "val": computed(op, *args, **kwargs)}
        return view


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


@dataclass(frozen=True, slots=True)
class _View:
    """Base `index`, seen through these operators."""

    index: int
    steps: tuple[Step, ...]


def _first_index(form: torch.Tensor, dim: Any) -> Any:
    """What a slice of a tensor of this form calls the first index of a dimension."""
    return form.storage_offset() // form.stride(dim) if slices_count_storage() else 0


class _CannotBeSeen(Exception):
    pass
