"""Undo the functionalization of input mutations.

AOTAutograd turns `cache.index_copy_(...)` into `new = index_copy(cache, ...)` with `cache.copy_(new)` at the end of the
graph: two copies of the whole cache a call. Where nothing reads the old value after `new` is made, the operator runs in
place and the copy goes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from airgraph.passes.analysis.aliases import Aliases
from airgraph.passes.analysis.in_place_forms import in_place_form, is_elementwise, same_form
from airgraph.passes.analysis.input_chain import PARTS, Kind, Link, Step, chain_to
from airgraph.passes.analysis.memory_use import MemoryUse
from airgraph.program.graph_order import GraphOrder
from airgraph.program.nodes import computed, is_view, nodes_in, notes
from airgraph.program.streams import streams_of

__all__ = ["reinplace_inputs"]

log = logging.getLogger(__name__)

_aten = torch.ops.aten


def reinplace_inputs(gm: GraphModule) -> int:
    """Replace `input.copy_(op(input, ...))` by `op_(input, ...)`, also for chains of such operators.

    What is computed on a view of the input and put back is written through that view; a value that is put into a part
    (slice_scatter and its kin) is copied into that part; a copy of the input that others write becomes the input; a
    copy of the input to itself goes.
    A chain is left alone, and the log says why, if an old value, or a view of one, is read after the operator that
    replaces it, if one of the operator's other arguments shares its memory (an operator that works element by element
    may be given the old value itself), if the new value is an output, or if a view of it would be another one of the
    input. So it is, in a graph of several streams, unless all that touches the input is certainly done before each
    write or begins after it. Returns the number of copies removed.
    """
    use = MemoryUse(gm.graph)
    order = _order_of(gm)
    removed = 0
    for copy in list(gm.graph.find_nodes(op="call_function", target=_aten.copy_.default)):
        target, value = copy.args[0], copy.args[1]
        if not (isinstance(target, Node) and target.op == "placeholder"):
            continue
        chain = chain_to(target, value)
        obstacle = chain if isinstance(chain, str) else _obstacle(target, chain, copy, use, order)
        if not isinstance(chain, str) and obstacle is not None:
            # What cannot be computed in a part may still be copied into it.
            chain = [replace(link, inner=(), start=None) if link.kind is Kind.PART else link for link in chain]
            obstacle = _obstacle(target, chain, copy, use, order)
        if isinstance(chain, str) or obstacle is not None:
            level = logging.DEBUG if order is None else logging.INFO
            log.log(level, "the copy into input %s stays: %s", target.name, obstacle)
            notes(copy)["why_kept"] = str(obstacle)
            continue
        for link in chain:
            _write_in_place(gm, target, link, use)
            use.aliases.join(link.node, target)
        copy.replace_all_uses_with(target)
        gm.graph.erase_node(copy)
        removed += 1
        if any(link.kind in (Kind.PART, Kind.VIEW) for link in chain):
            # With the copies into parts, which are new nodes. Else it holds: where an operator writes now, nobody takes
            # the old value afterwards, and the write at the copy's place still stands in it.
            use, order = MemoryUse(gm.graph), _order_of(gm)
    return removed


def _order_of(gm: GraphModule) -> GraphOrder | None:
    """None where there is one stream: then a node comes after all that stand before it."""
    return GraphOrder.of(gm.graph) if len(streams_of(gm.graph)) > 1 else None


def _obstacle(target: Node, chain: list[Link], copy: Node, use: MemoryUse, order: GraphOrder | None) -> str | None:
    """Why the values of a chain cannot lie in the input; None if they can."""
    steps = [step for link in chain for step in link.steps(target)]
    values = [step.node for step in steps]
    known_views = {*values, *(view for link in chain for view in link.views())}
    overwritten = [target]
    for step in steps:
        if step.writes:
            for old in overwritten:
                user = _taken_late(old, target, step.node, copy, values, use.aliases)
                if user is not None:
                    return f"{user.name} takes the old value after {step.node.name}"
            overwritten = []
        overwritten.append(step.node)
    roots = use.aliases.roots(target).union(*(use.aliases.roots(value) for value in values))
    for link, other in _other_arguments(chain):
        if use.aliases.roots(other) & roots and not _is_written_over(link, other):
            return f"{other.name}, another argument of {link.node.name}, may share the input's memory"
    for step in steps:
        users = use.aliases.users(step.node)
        # An output must be memory of its own, not the input.
        if any(user.op == "output" for user in users):
            return f"{step.node.name} is an output, which needs memory of its own"
        if use.written(step.node, after=copy):
            return f"{step.node.name} is written after it was copied"
        if use.aliases.absolute_view(step.node) is not None:
            return f"a view of {step.node.name} counts from the start of its storage"
        if not same_form(step.node, step.whole) and any(is_view(user) for user in users if user not in known_views):
            return f"strides of {step.node.name} differ from the input's, and a view of it is taken"
    return None if order is None else _unordered(target, steps, copy, use.aliases, order)


def _unordered(target: Node, steps: list[Step], copy: Node, aliases: Aliases, order: GraphOrder) -> str | None:
    """What touches the memory of the input or of its new values, on any stream, and is neither certainly done before a
    write nor begins after it."""
    touching = set().union(*(aliases.users(node) for node in (target, *(step.node for step in steps))))
    accesses = [node for node in touching if node.op == "call_function" and node is not copy and not is_view(node)]
    for step in steps:
        if not step.writes:
            continue
        for access in sorted(accesses, key=aliases.position):
            if access is not step.node and not (order.precedes(access, step.node) or order.precedes(step.node, access)):
                return f"nothing orders {access.name} and {step.node.name}, which are on different streams"
    return None


def _taken_late(old: Node, target: Node, writer: Node, copy: Node, values: list[Node], aliases: Aliases) -> Node | None:
    """A user of an old value after the operator that overwrites it."""
    for user in aliases.users(old):
        # After the copy the input has its new value in any case.
        late = old is target and aliases.position(user) > aliases.position(copy)
        if user is not copy and user not in values and not late and aliases.position(user) > aliases.position(writer):
            return user
    return None


def _other_arguments(chain: Iterable[Link]) -> Iterator[tuple[Link, Node]]:
    """What links take besides the old value and what their inner links make."""
    for link in chain:
        yield from _other_arguments(link.inner)
        if link.kind is not Kind.VIEW:
            own = 2 if link.inner else 1
            yield from ((link, other) for other in nodes_in((link.node.args[own:], link.node.kwargs)))


def _is_written_over(link: Link, other: Node) -> bool:
    """Whether an operator reads, of another argument that is the old value itself, each element before it writes it."""
    return link.kind is Kind.OPERATOR and other is link.node.args[0] and is_elementwise(link.node)


def _write_in_place(gm: GraphModule, target: Node, link: Link, use: MemoryUse) -> None:
    """Let a link write `target`, the input or a view of it."""
    node = link.node
    if link.kind is Kind.OPERATOR:
        node.target = in_place_form(node.target)  # type: ignore[assignment]
        node.args = (target, *node.args[1:])
        if not same_form(node, target):
            # A new value may have had other strides.
            node.meta["val"] = target.meta["val"]
        node.replace_all_uses_with(target, delete_user_cb=lambda user: user is not node)
        return
    if link.inner:
        assert link.start is not None
        for view in reversed(list(link.views())):
            # What it is a view of lies in the input by now, which may have other strides.
            view.meta["val"] = computed(view.target, *view.args, **view.kwargs)
        for inner in link.inner:
            _write_in_place(gm, link.start, inner, use)
    elif link.kind is Kind.PART:
        _copy_into_part(gm, target, node, use)
    unused = node.args[0]
    node.replace_all_uses_with(target)
    gm.graph.erase_node(node)
    while link.kind is Kind.VIEW and isinstance(unused, Node) and is_view(unused) and not unused.users:
        view, unused = unused, unused.args[0]
        gm.graph.erase_node(view)


def _copy_into_part(gm: GraphModule, target: Node, node: Node, use: MemoryUse) -> None:
    value: Any = node.args[1]
    with gm.graph.inserting_before(node):
        part = gm.graph.call_function(PARTS[node.target], (target, *node.args[2:]), dict(node.kwargs))
        written = gm.graph.call_function(_aten.copy_.default, (part, _uncopied(value, target, use)))
    part.meta = {**node.meta, "val": computed(part.target, *part.args, **part.kwargs)}
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
