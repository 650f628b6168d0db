"""One way to say what orders streams: by events of tags. Tokens, waits for tensors and torch's own streams become it.

torch's own, such as `torch.cuda.Stream`, are numbers in a traced graph, 0 for the stream that was current; what they do
are operators of the namespace "streams".
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from airgraph.passes.analysis.aliases import Aliases
from airgraph.program.nodes import notes
from airgraph.program.run_as_traced import is_external_object
from airgraph.program.stream_marks import (
    event_of,
    is_token,
    is_wait_for_tensors,
    keep_for,
    record_of,
    torchs_stream,
    wait_for,
)
from airgraph.program.streams import free_tag, put_on, stream_of
from airgraph.torch_internals.streams import priority_of_number

__all__ = ["as_tagged_events"]

_NAMESPACE = "streams::"


def as_tagged_events(gm: GraphModule) -> None:
    """Say tokens, waits for tensors and torch's own streams and events by events of tags, in place.

    Who waits for a tensor waits for the node that made its memory. The graph means what it meant.
    """
    graph = gm.graph
    if not any(_is_other_form(node) for node in graph.nodes):
        return
    taken = {event[0] for event in map(event_of, graph.nodes) if event is not None}
    _unwrap_control_dependencies(gm)
    _name_streams(graph)
    for node in list(graph.nodes):
        replace = _REPLACE.get(_name(node))
        if replace is not None:
            with graph.inserting_before(node):
                for mark in replace(graph, node, taken):
                    _place_like(mark, node)
            graph.erase_node(node)
    _replace_tokens(graph, taken)
    for node in reversed(list(graph.nodes)):
        if is_external_object(node) and not node.users:
            graph.erase_node(node)
    graph.lint()
    gm.recompile()


def _name(node: Node) -> str:
    return node.target.name() if isinstance(node.target, torch._ops.OpOverload) else ""


def _is_other_form(node: Node) -> bool:
    return (
        _name(node).startswith(_NAMESPACE)
        or is_token(node.target)
        or is_wait_for_tensors(node.target)
        or is_external_object(node)
        or _is_control_dependency(node)
        or "stream" in (node.meta.get("custom") or {})
    )


def _is_control_dependency(node: Node) -> bool:
    """Whether AOTAutograd wrapped an operator on streams."""
    target = node.target
    return isinstance(target, torch._ops.HigherOrderOperator) and target.name() == "control_deps"


def _unwrap_control_dependencies(gm: GraphModule) -> None:
    """Put what AOTAutograd wraps to keep it in place, one operator on streams each time, where it is wrapped.

    `control_deps(others, subgraph, *values)` gives the subgraph's result and the values.
    """
    graph = gm.graph
    for node in list(graph.nodes):
        if not _is_control_dependency(node):
            continue
        _, subgraph, *values = node.args
        inner = getattr(gm, subgraph.target).graph
        given = dict(zip(inner.find_nodes(op="placeholder"), values, strict=True))
        with graph.inserting_before(node):
            for each in inner.nodes:
                if each.op == "call_function":
                    copied = given[each] = graph.node_copy(each, given.__getitem__)
                    _place_like(copied, node)
        for user in list(node.users):
            if user.target is operator.getitem and user.args[1] >= 1:
                user.replace_all_uses_with(values[user.args[1] - 1])
                graph.erase_node(user)
            elif _is_control_dependency(user):
                # That it comes later is said by its place.
                user.args = (tuple(other for other in user.args[0] if other is not node), *user.args[1:])
        if not node.users:
            graph.erase_node(node)
            if not subgraph.users:
                graph.erase_node(subgraph)
    gm.delete_all_unused_submodules()


def _name_streams(graph: Graph) -> None:
    """Put what is on one of torch's own streams on the stream of a tag, unless a scope within says otherwise."""
    for node in graph.nodes:
        number = torchs_stream(node)
        if node.op == "call_function" and number is not None:
            _put_on_native(node, number)


def _put_on_native(node: Node, number: Any) -> None:
    """Put a node on one of torch's own streams, with the stream's priority."""
    put_on(node, _tag(number))
    if number != 0:
        notes(node)["priority"] = priority_of_number(number)


def _tag(number: Any) -> str | None:
    """Of one of torch's own streams; None: the one that was current when the graph began."""
    return None if number == 0 else f"torch stream {number}"


def _record_native(graph: Graph, node: Node, taken: set[str]) -> list[Node]:
    event, stream = node.args
    mark = record_of(graph, f"torch event {event}")
    _put_on_native(mark, stream)
    return [mark]


def _wait_native(graph: Graph, node: Node, taken: set[str]) -> list[Node]:
    event, stream = node.args[:2]
    mark = wait_for(graph, f"torch event {event}")
    _put_on_native(mark, stream)
    return [mark]


def _wait_for_stream(graph: Graph, node: Node, taken: set[str]) -> list[Node]:
    waiting, awaited = node.args
    tag = free_tag(f"torch stream {awaited} so far", taken)
    recorded, waits = record_of(graph, tag), wait_for(graph, tag)
    _put_on_native(recorded, awaited)
    _put_on_native(waits, waiting)
    return [recorded, waits]


def _keep(graph: Graph, node: Node, taken: set[str]) -> list[Node]:
    tensor, stream = node.args
    if not isinstance(tensor, Node):
        return []
    mark = keep_for(graph, tensor, _tag(stream) or "default")
    put_on(mark, stream_of(node))
    return [mark]


_REPLACE: Mapping[str, Callable[[Graph, Node, set[str]], list[Node]]] = MappingProxyType(
    {
        "streams::record_event": _record_native,
        "streams::wait_event": _wait_native,
        "streams::sync_dealloc": _wait_native,
        "streams::wait_stream": _wait_for_stream,
        "streams::record_stream": _keep,
        # The annotation of the nodes between says the same.
        "streams::fork": lambda graph, node, taken: [],
        "streams::join": lambda graph, node, taken: [],
    }
)


def _replace_tokens(graph: Graph, taken: set[str]) -> None:
    aliases = Aliases(graph)
    tags: dict[Node, str] = {}
    for node in list(graph.nodes):
        if is_wait_for_tensors(node.target):
            with graph.inserting_before(node):
                for maker in _makers(node, aliases):
                    mark = wait_for(graph, _recorded_after(maker, tags, taken))
                    put_on(mark, stream_of(node))
                    _place_like(mark, node)
            graph.erase_node(node)
    for token in [node for node in graph.nodes if is_token(node.target)]:
        if not token.users:
            graph.erase_node(token)
            continue
        # It is handed out: an empty tensor, as it was.
        with graph.inserting_before(token):
            empty = graph.call_function(torch.ops.aten.empty.memory_format, ([0],), {"device": torch.device("cpu")})
        empty.meta = dict(token.meta)
        token.replace_all_uses_with(empty)
        graph.erase_node(token)


def _makers(wait: Node, aliases: Aliases) -> list[Node]:
    """The nodes on other streams that make the memory of what a node waits for, in the order of the program."""
    found: dict[Node, None] = {}
    for tensor in wait.all_input_nodes:
        for root in aliases.roots(tensor):
            maker = root
            while maker.target is operator.getitem:
                maker = maker.args[0]  # type: ignore[assignment]
            if maker.op == "call_function" and stream_of(maker) != stream_of(wait):
                found[maker] = None
    return sorted(found, key=aliases.position)


def _recorded_after(maker: Node, tags: dict[Node, str], taken: set[str]) -> str:
    """The tag of an event that is recorded right after a node."""
    if maker not in tags:
        tags[maker] = free_tag(f"after {maker.name}", taken)
        with maker.graph.inserting_after(maker):
            mark = record_of(maker.graph, tags[maker])
        put_on(mark, stream_of(maker))
        _place_like(mark, maker)
    return tags[maker]


def _place_like(mark: Node, node: Node) -> None:
    """Give a mark the source line of a node."""
    if "stack_trace" in node.meta:
        mark.meta["stack_trace"] = node.meta["stack_trace"]
