"""Which nodes of a graph certainly happen before which: its streams, joined by its events."""

from __future__ import annotations

from torch.fx import Graph, Node

from airgraph.program.order import WorkOrder
from airgraph.program.stream_marks import event_of
from airgraph.program.streams import stream_of, streams_of

__all__ = ["GraphOrder"]


class GraphOrder:
    """The order of a graph's nodes, for those added so far.

    Each node that is called is a step of its stream. A side stream starts when the graph starts; the output waits for
    the end of all of them. A wait sees the latest record of its event before it in program order.
    """

    def __init__(self, streams: tuple[str | None, ...]) -> None:
        """streams: all of the graph, as `streams_of` has them."""
        self.streams = streams
        self.work = WorkOrder(streams=len(streams))
        self._steps: dict[Node, int] = {}
        self._recorded: dict[str, int] = {}

    @classmethod
    def of(cls, graph: Graph) -> GraphOrder:
        order = cls(streams_of(graph))
        for node in graph.nodes:
            order.add(node)
        return order

    def add(self, node: Node) -> None:
        """The next node of the graph; inputs and constants are there before all."""
        if node.op == "output":
            ends = [self.work.last_of(stream) for stream in range(len(self.streams))]
            self._steps[node] = self.work.append(0, [end for end in ends if end is not None])
        if node.op != "call_function":
            return
        event = event_of(node)
        waits = [self._recorded[event[0]]] if event is not None and event[1] and event[0] in self._recorded else []
        step = self._steps[node] = self.work.append(self.streams.index(stream_of(node)), waits)
        if event is not None and not event[1]:
            self._recorded[event[0]] = step

    def step(self, node: Node) -> int:
        """Its number in program order. Raises KeyError for what is no step: inputs, constants."""
        return self._steps[node]

    def precedes(self, node: Node, other: Node) -> bool:
        """Whether one is certainly done before the other begins."""
        return self.work.precedes(self._steps[node], self._steps[other])

    def wait_too(self, other: Node) -> None:
        """The node that was added last waits for this one, too."""
        self.work.wait_too(self._steps[other])
