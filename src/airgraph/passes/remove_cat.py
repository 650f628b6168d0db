"""Let producers write straight into their parts of a cat or a stack, which then needs no operator of its own."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from airgraph.passes.analysis.memory_use import MemoryUse
from airgraph.passes.analysis.sizes import Sizes
from airgraph.passes.shape_arithmetic import fold_shape_arithmetic
from airgraph.program.operators import out_form
from airgraph.program.trees import mapped
from airgraph.torch_internals.symbolic_shapes import statically_known_true

log = logging.getLogger(__name__)

__all__ = ["keeps_to_strides", "remove_cats"]

_aten = torch.ops.aten
_JOINS = (_aten.cat.default, _aten.stack.default)
_COPIES = (_aten.clone.default, _aten._to_copy.default)
# Besides the pointwise ones, operators whose `out` may have strides of any kind. Not every one that promises it keeps
# it: on CPU _softmax and others write as if `out` were dense, and of the pointwise ones so do these.
_ANY_STRIDES = {
    _aten.mm.default,
    _aten.matmul.default,
    _aten.addmm.default,
    _aten.bmm.default,
    _aten.baddbmm.default,
    _aten.sum.dim_IntList,
    _aten.mean.dim,
    _aten.amax.default,
    _aten.amin.default,
    _aten.index_select.default,
    _aten.gather.default,
}
_DENSE_ONLY = {_aten.gelu.default, _aten.logit.default}


def remove_cats(gm: GraphModule) -> int:
    """Replace cats and stacks by writes into slices of an empty result; returns how many.

    An operator that makes a part writes it there itself if it has an `out=` form and the result's dtype and the part is
    not an output and is not written. Where the slice has other strides than the part had, nobody else may read it, and
    the operator must be known to keep to the strides of its `out`. At most one part that is not made so is copied; with
    more the join stays, since it is one operator and they would be several. A join that is a part of another makes its
    parts in that one's slice.
    """
    planner = _Planner(gm)
    inner = set().union(*(join.made for join in planner.joins.values()))
    for node, join in planner.joins.items():
        if node not in inner:
            _Writer(gm, planner.joins, planner.sizes, join.first).make(join)
    if planner.joins:
        fold_shape_arithmetic(gm)
    return len(planner.joins)


@dataclass(frozen=True, slots=True)
class _Join:
    """A cat or stack to be replaced. made: the parts that are written by what makes them; the rest is copied.

    first: where its memory is needed first. movable: whether it may lie where the strides are others.
    """

    node: Node
    made: frozenset[Node]
    first: Node
    movable: bool


class _Planner:
    """Which joins can go, by node, in the order of the graph. Nothing is changed yet."""

    def __init__(self, gm: GraphModule) -> None:
        self.sizes = Sizes(gm.graph)
        self.joins: dict[Node, _Join] = {}
        self._use = MemoryUse(gm.graph)
        self._taken: set[Node] = set()
        for node in gm.graph.nodes:
            if node.target not in _JOINS:
                continue
            join = self._plan(node)
            if isinstance(join, str):
                log.debug("%s stays: %s", node.name, join)
                continue
            self.joins[node] = join
            self._taken |= join.made
            for part in join.made:
                self._use.aliases.join(part, node)

    def _plan(self, node: Node) -> _Join | str:
        """What is wrong where it cannot go."""
        parts: list[Any] = list(node.args[0])  # type: ignore[arg-type]
        value = node.meta["val"]
        rank = value.dim() - (node.target is _aten.stack.default)
        forms = [part.meta["val"] for part in parts]
        # By an old rule of cat an empty tensor of one dimension may stand among others.
        if any(form.dim() != rank for form in forms):
            return "its parts differ in rank"
        if not all(self.sizes.known((*form.shape, *form.stride())) for form in [*forms, value]):
            return "a size is not known before the graph runs"
        obstacles = {part: self._obstacle(node, part) for part in parts}
        made = frozenset(part for part, obstacle in obstacles.items() if obstacle is None)
        if not made or len(parts) - len(made) > 1:
            reasons = (f"{part.name} {obstacle}" for part, obstacle in obstacles.items() if obstacle)
            return f"several parts would be copied: {', '.join(reasons)}"
        firsts = [self.joins[part].first if part in self.joins else part for part in made]
        first = min(firsts, key=self._use.aliases.position)
        return _Join(node, made, first, all(self._takes_strides(part) for part in made))

    def _obstacle(self, node: Node, part: Node) -> str | None:
        """Why a part cannot be made in the memory of a join; None if it can."""
        ours, theirs = part.meta["val"], node.meta["val"]
        if part in self._taken:
            return "is part of another"
        if ours.dtype != theirs.dtype or ours.device != theirs.device or ours.is_conj() or ours.is_neg():
            return "has another dtype or device"
        if part not in self.joins and not _writes_where_told(part):
            return "is not made by an operator with an out="
        if self._use.handed_out(part):
            return "is an output"
        if self._use.written(part):
            return "is written"
        absolute = self._use.aliases.absolute_view(part)
        if absolute is not None:
            return f"is seen by {absolute.name} from the start of its storage"
        # Joins that are replaced read whatever the strides are.
        others = [user for user in self._use.aliases.users(part) if user is not node and user not in self.joins]
        if _same_strides(part, node):
            return (
                f"is read by {others[0].name}, and the result is written"
                if others and self._use.written(node)
                else None
            )
        if others:
            return f"is read by {others[0].name} with its own strides"
        return None if self._takes_strides(part) else "may be written as if its strides were its own"

    def _takes_strides(self, part: Node) -> bool:
        """Whether a part may be made where the strides are not its own."""
        return self.joins[part].movable if part in self.joins else keeps_to_strides(part.target)


class _Writer:
    """Rewrites an outermost join and those in it. anchor: before what its memory and slices are made."""

    def __init__(self, gm: GraphModule, joins: dict[Node, _Join], sizes: Sizes, anchor: Node) -> None:
        self._graph = gm.graph
        self._joins = joins
        self._sizes = sizes
        self._anchor = anchor

    def make(self, join: _Join, whole: Node | None = None) -> None:
        """whole: where the result lies; None: in memory of its own."""
        if whole is None:
            value = join.node.meta["val"]
            options = {"dtype": value.dtype, "device": value.device}
            whole = self._insert(_aten.empty_strided.default, (value.shape, value.stride()), value, join.node, options)
        start: Any = 0
        made = set(join.made)
        for position in range(len(join.node.args[0])):  # type: ignore[arg-type]
            # As it is now: another join may have taken it.
            part: Node = join.node.args[0][position]  # type: ignore[index,assignment]
            piece, start = self._piece(join.node, whole, part, position, start)
            if part not in made:
                with self._graph.inserting_before(join.node):
                    copy = self._graph.call_function(_aten.copy_.default, (piece, part))
                copy.meta = dict(piece.meta)
                continue
            made.discard(part)
            if part in self._joins:
                self.make(self._joins[part], piece)
            else:
                _write_into(part, piece)
        join.node.replace_all_uses_with(whole)
        self._graph.erase_node(join.node)

    def _piece(self, node: Node, whole: Node, part: Node, position: int, start: Any) -> tuple[Node, Any]:
        """The slice in which a part lies, and where the next begins."""
        dim, value = _dim(node), part.meta["val"]
        form = whole.meta["val"].new_empty_strided(value.shape, _strides_of_parts(node, whole))
        if node.target is _aten.stack.default:
            return self._insert(_aten.select.int, (whole, dim, position), form, node), start
        end = start + value.shape[dim]
        return self._insert(_aten.slice.Tensor, (whole, dim, start, end), form, node), end

    def _insert(self, op: Any, args: Any, form: Any, node: Node, options: dict[str, Any] | None = None) -> Node:
        """A call at the anchor, on behalf of a node; form: what it gives."""
        with self._graph.inserting_before(self._anchor):
            call = self._graph.call_function(op, self._written(args), options)
        call.meta = {**node.meta, "val": form}
        return call

    def _written(self, value: Any) -> Any:
        return mapped((int, torch.SymInt), self._sizes.write, value)


def _writes_where_told(part: Node) -> bool:
    return part.op == "call_function" and (part.target in _COPIES or _out_form(part) is not None)


def keeps_to_strides(op: Any) -> bool:
    """Whether an operator with an `out` writes it right whatever its strides are."""
    if op in _COPIES or op in _ANY_STRIDES:
        return True
    # Random numbers are drawn in the order of memory.
    is_random = torch.Tag.nondeterministic_seeded in op.tags
    return torch.Tag.pointwise in op.tags and op not in _DENSE_ONLY and not is_random


def _out_form(part: Node) -> torch._ops.OpOverload | None:
    """The form of an operator that writes into memory that it is given.

    A pointwise one may as well make its result and copy it: that is what a cat does.
    """
    op = part.target
    if not isinstance(op, torch._ops.OpOverload) or len(op._schema.returns) != 1:
        return None
    return out_form(op, part.meta["val"].device.type, generated=torch.Tag.pointwise in op.tags)


def _write_into(part: Node, piece: Node) -> None:
    """Everything that takes the part takes the piece, which the part's operator writes."""
    part.replace_all_uses_with(piece)
    if part.target in _COPIES:
        part.target, part.args, part.kwargs = _aten.copy_.default, (piece, part.args[0]), {}
    else:
        form = _out_form(part)
        assert form is not None
        (out,) = (argument.name for argument in form._schema.arguments if argument.is_out)
        part.target, part.kwargs = form, {**part.kwargs, out: piece}
    part.meta["val"] = piece.meta["val"]


def _same_strides(part: Node, node: Node) -> bool:
    pairs = zip(part.meta["val"].stride(), _strides_of_parts(node, node), strict=True)
    return all(statically_known_true(ours == theirs) for ours, theirs in pairs)


def _strides_of_parts(node: Node, whole: Node) -> tuple[Any, ...]:
    strides: tuple[Any, ...] = whole.meta["val"].stride()
    dim = _dim(node)
    return strides if node.target is _aten.cat.default else strides[:dim] + strides[dim + 1 :]


def _dim(node: Node) -> int:
    """Counted from the front."""
    dim: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    return dim % node.meta["val"].dim()
