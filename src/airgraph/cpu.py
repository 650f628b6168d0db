"""Graphs, streams and events by hand on the CPU, with the shape of `torch.cuda`, and where weights lie."""

from airgraph.runtime.cpu.hand_graph import CPUGraph, graph, graph_pool_handle
from airgraph.runtime.cpu.streams import Event, Stream, current_stream, stream, synchronize
from airgraph.runtime.cpu.weights import PlacedWeights, place_weights

__all__ = [
    "CPUGraph",
    "Event",
    "PlacedWeights",
    "Stream",
    "current_stream",
    "graph",
    "graph_pool_handle",
    "place_weights",
    "stream",
    "synchronize",
]
