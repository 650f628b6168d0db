"""Whether a graph of Dynamo's leaves another of torch's streams as the current one than it begins with."""

from __future__ import annotations

from typing import Any

from torch.fx import Graph, Node

__all__ = ["ENDS_ON_ANOTHER_STREAM", "is_external_object", "leaves_another_stream"]

# Why it is not captured.
ENDS_ON_ANOTHER_STREAM = "it leaves another stream as the current one"

# By this number Dynamo knows the stream that is the current one before.
_FIRST = 0


def leaves_another_stream(graph: Graph) -> bool:
    """Whether after the graph another stream is the current one than before.

    Dynamo and AOTAutograd run `set_stream` while they trace, and the latter leaves nothing of it in its graph. Asked
    while the graph is compiled, for as long as its streams can be looked up.
    """
    now: object = _FIRST
    known: dict[Node, object] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if _name(node) == "current_stream":
            known[node] = now
        elif _name(node) == "set_stream":
            given = node.args[0]
            if isinstance(given, Node) and is_external_object(given):
                now = _stream_of(given)
            else:
                now = known.get(given, given) if isinstance(given, Node) else given
    return now != _FIRST


def _stream_of(node: Node) -> object:
    look_up: Any = node.target
    found, first = look_up(*node.args), look_up(_FIRST)
    # Not compared themselves: streams of two classes are never equal.
    is_first = (found.device, getattr(found, "stream_id", None)) == (first.device, first.stream_id)
    return _FIRST if is_first else found


def is_external_object(node: Node) -> bool:
    """Whether it looks up one of torch's streams or events by its number."""
    return node.op == "call_function" and _name(node) == "get_external_object_by_index"


def _name(node: Node) -> str:
    return getattr(node.target, "__name__", "")
