"""Graphs, streams and events by hand on the CPU, with the shape of `torch.cuda`."""

from airgraph.runtime.cpu.hand_graph import CPUGraph, graph, graph_pool_handle
from airgraph.runtime.cpu.streams import Event, Stream, current_stream, stream, synchronize

__all__ = [
    "CPUGraph",
    "Event",
    "Stream",
    "current_stream",
    "graph",
    "graph_pool_handle",
    "stream",
    "synchronize",
]
