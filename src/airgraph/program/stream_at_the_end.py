"""Graphs of Dynamo's that leave another of torch's streams as the current one than they begin with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node

from airgraph.program.stream_marks import SCOPE

__all__ = ["ENDS_ON_ANOTHER_STREAM", "call_on_streams", "is_external_object", "leaves_another_stream"]

# Why it is not captured.
ENDS_ON_ANOTHER_STREAM = "it leaves another stream as the current one"

# By this number Dynamo knows the stream that is the current one at a call.
_FIRST = 0


def leaves_another_stream(graph: Graph) -> bool:
    """Whether after the graph another stream is the current one than before, or may be.

    Dynamo and AOTAutograd run `set_stream` while they trace, and the latter leaves nothing of it in its graph.
    """
    now: object = _FIRST
    known: dict[object, object] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if is_external_object(node):
            known[node] = node.args[0]
        elif _name(node) == "current_stream":
            known[node] = now
        elif _name(node) == "set_stream":
            given = node.args[0] if node.args else node.kwargs.get("stream")
            now = known.get(given, given)
    return now != _FIRST


def call_on_streams(gm: GraphModule) -> Callable[..., Any]:
    """The graph, run as the program was: what lies in a block of a stream on that stream.

    Dynamo only notes the blocks. Its trace has made another stream the current one, which is undone here, since the
    first call follows.
    """
    look_up: Any = next((node.target for node in gm.graph.nodes if is_external_object(node)), None)
    if look_up is None:
        return gm.forward
    torch.accelerator.set_stream(look_up(_FIRST))
    if not any(_block_of(node) is not None for node in gm.graph.nodes):
        return gm.forward

    class OnStreams(Interpreter):
        def run_node(self, n: Node) -> Any:
            number = _block_of(n)
            if number is None:
                return super().run_node(n)
            with look_up(number):
                return super().run_node(n)

    return lambda *args: OnStreams(gm).run(*args)


def _block_of(node: Node) -> int | None:
    """The number of the stream whose block an operator lies in."""
    custom = node.meta.get("custom") or {}
    number = custom.get("stream")
    return number if node.op == "call_function" and isinstance(number, int) and SCOPE not in custom else None


def is_external_object(node: Node) -> bool:
    """Whether it looks up one of torch's streams or events by its number."""
    return node.op == "call_function" and _name(node) == "get_external_object_by_index"


def _name(node: Node) -> str:
    return getattr(node.target, "__name__", "")
