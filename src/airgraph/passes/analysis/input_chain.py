"""The operators that lead from the old value of an input to its new one, as functionalization wrote them."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from airgraph.passes.analysis.in_place_forms import in_place_form, same_shape_and_dtype
from airgraph.program.nodes import computed, is_view, without_views
from airgraph.torch_internals.symbolic_shapes import statically_known_true

__all__ = ["PARTS", "Kind", "Link", "Step", "chain_to", "is_put_back", "is_whole", "leads_back", "unseen"]

_aten = torch.ops.aten
# What puts a value into a part of a tensor, and the view that is this part; both take the same arguments after it.
PARTS: dict[Any, Any] = {
    _aten.slice_scatter.default: _aten.slice.Tensor,
    _aten.select_scatter.default: _aten.select.int,
    _aten.diagonal_scatter.default: _aten.diagonal.default,
}


class Kind(enum.Enum):
    OPERATOR = "has a form that writes its first argument"
    PART = "puts a value into a part of the old one"
    VIEW = "sees the new value in the old one's form again, after `inner` were computed in another"
    COPY = "a copy of the old value, which later operators write"


@dataclass(frozen=True, slots=True)
class Link:
    """A node that gives a new value. inner: how a view of the old value becomes what a PART or VIEW takes, if it does.

    start: that view.
    """

    node: Node
    kind: Kind
    inner: tuple[Link, ...] = ()
    start: Node | None = None

    def views(self) -> Iterator[Node]:
        """The views of old values that its values are computed on, the last one first."""
        view = self.start
        while view is not None and is_view(view):
            yield view
            view = view.args[0]  # type: ignore[assignment]
        for link in self.inner:
            yield from link.views()

    def steps(self, whole: Node) -> Iterator[Step]:
        """The values that this link makes of `whole`, in their order."""
        if not self.inner or self.start is None:
            yield Step(self.node, whole, writes=True)
            return
        for link in self.inner:
            yield from link.steps(self.start)
        if self.kind is Kind.VIEW:
            for view in reversed(_views_down_to(self.node, self.inner[-1].node)):
                yield Step(view, self.start, writes=False)
        else:
            yield Step(self.node, whole, writes=False)


@dataclass(frozen=True, slots=True)
class Step:
    """A value that is to lie in the memory of `whole`. writes: whether it is made by writing there."""

    node: Node
    whole: Node
    writes: bool


def chain_to(target: Node, value: object) -> list[Link] | str:
    """The links that lead from `target` to `value`, first to last, none if they are one; what is wrong otherwise."""
    chain: list[Link] = []
    while (value := unseen(value, target)) is not target:
        if not isinstance(value, Node) or value.op != "call_function" or not value.args:
            return "its new value is not computed from the old one"
        found = _seen_again(target, value) if is_view(value) else _link(value)
        if found is None:
            return f"{value.name} ({value.target}) has no in-place form"
        link, base = found
        if not same_shape_and_dtype(value, target) or not same_shape_and_dtype(base, target):
            return f"shape or dtype of {value.name} differ from the input's"
        chain.append(link)
        value = base
    return chain[::-1]


def _link(node: Node) -> tuple[Link, Node] | None:
    """An operator as a link, and the old value that it is computed from."""
    base = node.args[0]
    if not isinstance(base, Node):
        return None
    if node.target in PARTS:
        start = _part_under(node.args[1], base, node)
        inner = () if start is None else _computed_inside(start, node.args[1])
        return Link(node, Kind.PART, inner, start if inner else None), base
    if node.target is _aten.clone.default:
        return Link(node, Kind.COPY), base
    is_operator = isinstance(node.target, torch._ops.OpOverload) and in_place_form(node.target) is not None
    return (Link(node, Kind.OPERATOR), base) if is_operator else None


def _seen_again(target: Node, node: Node) -> tuple[Link, Node] | None:
    """A new value that was computed on a view of the old one and is seen in the old one's form again."""
    value: Any = node
    while isinstance(value, Node) and is_view(value):
        value = value.args[0]
    start = _view_under(value)
    if start is None:
        return None
    inner = _computed_inside(start, value)
    views = _views_down_to(node, value)
    base: Any = start
    while inner and isinstance(base, Node) and is_view(base):
        base = base.args[0]
        if not isinstance(base, Node) or not same_shape_and_dtype(base, target):
            continue
        if _lead_back(target, [*views, *_views_down_to(start, base)]):
            return Link(node, Kind.VIEW, inner, start), base
    return None


def _view_under(value: object) -> Node | None:
    """The view that a value is computed from, by operators on what the one before gave."""
    node: Any = value
    while isinstance(node, Node) and node.op == "call_function" and not is_view(node):
        if node.target not in PARTS and _link(node) is None:
            return None
        node = node.args[0]
    return node if isinstance(node, Node) and is_view(node) else None


def _computed_inside(start: Node, value: object) -> tuple[Link, ...]:
    """The links from a view to a value; none if there are other operators between them."""
    links = chain_to(start, value)
    return () if isinstance(links, str) else tuple(links)


def unseen(value: object, target: Node | None = None) -> Any:
    """What a value is, without views that come to nothing; target: what is looked through no further."""
    found: Any = value
    base: Any = value
    while isinstance(base, Node) and base is not target and is_view(base):
        base = base.args[0]
        if isinstance(base, Node) and same_shape_and_dtype(base, found):
            views = _views_down_to(found, base)
            if _are_one(_seen(base, views), base.meta["val"]):
                found = base
    return found


def leads_back(target: Node, value: object, new: Node, old: Node) -> bool:
    """Whether a view of `new` is `target` itself if `old` takes the place of `new`, both seen through views."""
    if not _lies_under(value, new) or not _lies_under(old, target):
        return False
    return _lead_back(target, [*_views_down_to(value, new), *_views_down_to(old, target)])  # type: ignore[arg-type]


def _lies_under(view: object, base: Node) -> bool:
    while view is not base and isinstance(view, Node) and is_view(view):
        view = view.args[0]
    return view is base


def is_whole(scatter: Node) -> bool:
    """Whether an operator of PARTS puts a value into all of a tensor."""
    base = scatter.args[0]
    return isinstance(base, Node) and _are_one(_part(base, scatter), base.meta["val"])


def is_put_back(scatter: Node) -> bool:
    """Whether an operator of PARTS puts a part of a tensor where it is."""
    base, value = scatter.args[:2]
    bottom = without_views(base)
    if not isinstance(bottom, Node) or bottom is not without_views(value):
        return False
    whole, part = (_seen(bottom, _views_down_to(view, bottom)) for view in (base, value))  # type: ignore[arg-type]
    return isinstance(whole, torch.Tensor) and _are_one(_put_into(scatter, whole), part)


def _part(base: Node, scatter: Node) -> Any:
    return _put_into(scatter, base.meta["val"])


def _put_into(scatter: Node, whole: torch.Tensor) -> Any:
    """The part of a tensor that an operator of PARTS puts its value into."""
    return computed(PARTS[scatter.target], whole, *scatter.args[2:], **scatter.kwargs)


def _part_under(value: object, base: Node, scatter: Node) -> Node | None:
    """The view that a value is computed from, of that part of `base` which the value is put into."""
    part = _part(base, scatter)
    node: Any = value
    while isinstance(node, Node) and node is not base and node.op == "call_function" and node.args:
        if _lies_under(node, base) and _are_one(_seen(base, _views_down_to(node, base)), part):
            return node
        node = node.args[0]
    return None


def _views_down_to(node: Node, value: Node) -> list[Node]:
    """The views from `node` down, the one of `value` last."""
    views = []
    while node is not value:
        views.append(node)
        node = node.args[0]  # type: ignore[assignment]
    return views


def _lead_back(target: Node, views: list[Node]) -> bool:
    """Whether these views, the last one first, lead from `target` back to each element's own place."""
    return _are_one(_seen(target, views), target.meta["val"])


def _seen(node: Node, views: list[Node]) -> Any:
    """What these views, the last one first, make of a node's value; None if they cannot, with its strides."""
    seen = node.meta["val"]
    for view in reversed(views):
        try:
            seen = computed(view.target, seen, *view.args[1:], **view.kwargs)
        except RuntimeError:
            return None
    return seen


def _are_one(ours: Any, theirs: Any) -> bool:
    """Whether two views of one tensor are the same."""
    if not isinstance(ours, torch.Tensor) or not isinstance(theirs, torch.Tensor) or ours.dtype != theirs.dtype:
        return False
    if ours.is_conj() != theirs.is_conj() or ours.is_neg() != theirs.is_neg():
        return False
    forms = [(*value.shape, *value.stride(), value.storage_offset()) for value in (ours, theirs)]
    return len(forms[0]) == len(forms[1]) and all(statically_known_true(a == b) for a, b in zip(*forms, strict=True))
