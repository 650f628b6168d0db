"""Graphs of Dynamo's that do what AOTAutograd does while it traces, and leaves nothing of: they run as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node

from airgraph.program.stream_marks import torchs_stream

__all__ = ["HOST_WAITS", "call_on_streams", "is_external_object", "why_it_runs_as_it_is"]

# Why it is not captured.
HOST_WAITS = "the host waits for a stream or an event in it"
_ENDS_ON_ANOTHER_STREAM = "it leaves another stream as the current one"

# By this number Dynamo knows the stream that is the current one at a call.
_FIRST = 0


def why_it_runs_as_it_is(graph: Graph) -> str | None:
    """Why a graph of Dynamo's is for `call_on_streams`; None if AOTAutograd keeps all that it does."""
    if _leaves_another_stream(graph):
        return _ENDS_ON_ANOTHER_STREAM
    return HOST_WAITS if any(map(_waits_for_the_device, graph.nodes)) else None


def _waits_for_the_device(node: Node) -> bool:
    """Whether it calls `torch.npu.synchronize`, which is no operator of torch's as that of CUDA is."""
    of_a_device = not getattr(node.target, "__module__", "").startswith("torch.cpu")
    return node.op == "call_function" and _name(node) == "synchronize" and of_a_device


def _leaves_another_stream(graph: Graph) -> bool:
    """Whether after the graph another stream is the current one than before, or may be.

    `set_stream` is run while it is traced.
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
    number = torchs_stream(node)
    return number if node.op == "call_function" and isinstance(number, int) else None


def is_external_object(node: Node) -> bool:
    """Whether it looks up one of torch's streams or events by its number."""
    return node.op == "call_function" and _name(node) == "get_external_object_by_index"


def _name(node: Node) -> str:
    return getattr(node.target, "__name__", "")
