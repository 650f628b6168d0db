"""Which stream a node of a graph is on, and whether its events make sense."""

from __future__ import annotations

from typing import Any

from torch.fx import Graph, Node

from airgraph.errors import StreamError
from airgraph.program import source_lines
from airgraph.program.nodes import notes
from airgraph.program.stream_marks import DEFAULT, PRIORITY, SCOPE, event_of, torchs_stream

__all__ = ["check_events", "free_tag", "priorities_of", "priority_of", "put_on", "stream_of", "streams_of"]


def stream_of(node: Node) -> str | None:
    """The stream a node was put on, as its notes, its scope or torch's annotation say; None: the default one."""
    stream: Any = notes(node).get("stream")
    if stream is None:
        stream = torchs_stream(node)
    if stream is None:
        stream = (node.meta.get("custom") or {}).get(SCOPE)
    return None if stream is None or stream == DEFAULT else str(stream)


def put_on(node: Node, stream: str | None) -> None:
    """Put a node on a stream; None: the default one."""
    notes(node)["stream"] = DEFAULT if stream is None else stream


def streams_of(graph: Graph) -> tuple[str | None, ...]:
    """The streams that a graph's nodes are on, as they come; the default one where there is no node."""
    return tuple(dict.fromkeys(stream_of(node) for node in graph.nodes if node.op == "call_function")) or (None,)


def priority_of(node: Node) -> int:
    """Of the scope or of torch's own stream that a node was traced in; lower is more urgent."""
    return notes(node).get("priority", (node.meta.get("custom") or {}).get(PRIORITY, 0))


def priorities_of(graph: Graph) -> dict[str, int]:
    """Of each side stream the first priority that a node on it has; 0 where none has one.

    What passes put on a stream, such as waits, has none.
    """
    found: dict[str, int] = {}
    for node in graph.nodes:
        stream = stream_of(node)
        if node.op == "call_function" and stream is not None:
            found[stream] = found.get(stream) or priority_of(node)
    return found


def free_tag(wanted: str, taken: set[str]) -> str:
    """A tag for an event that no other has, which is taken from now on."""
    tag, number = wanted, 2
    while tag in taken:
        tag, number = f"{wanted} ({number})", number + 1
    taken.add(tag)
    return tag


def check_events(graph: Graph) -> None:
    """Raises StreamError for the first wait for an event that was not recorded before it."""
    recorded: set[str] = set()
    for node in graph.nodes:
        found = event_of(node)
        if found is None:
            continue
        tag, waits = found
        if not waits:
            recorded.add(tag)
        elif tag not in recorded:
            raise StreamError(
                f"event {tag!r} is waited for at {source_lines.of_node(node)} and not recorded before it in this "
                "graph, so that the wait would never order anything. Record it first, in the same graph."
            )
