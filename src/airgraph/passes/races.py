"""Accesses of two streams to one memory that nothing orders, and the waits that order them.

Method: one pass in program order with vector clocks, of each memory the latest read and write of each stream
(FastTrack: Flanagan and Freund, 2009).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch.fx import Graph, GraphModule, Node

from airgraph.passes.analysis.aliases import Aliases
from airgraph.program import source_lines
from airgraph.program.graph_order import GraphOrder
from airgraph.program.nodes import is_view, written_nodes
from airgraph.program.stream_marks import event_of, is_mark, record_of, wait_for
from airgraph.program.streams import free_tag, put_on, stream_of, streams_of

__all__ = ["Race", "insert_waits", "races_in"]


@dataclass(frozen=True, slots=True)
class Race:
    """Two nodes of different streams of which one writes what the other uses; `first` comes first in program order."""

    first: Node
    second: Node
    first_writes: bool
    second_writes: bool

    def __str__(self) -> str:
        first, second = ("writes" if each else "reads" for each in (self.first_writes, self.second_writes))
        return f"{_named(self.first)} {first} what {_named(self.second)} {second}"


def races_in(graph: Graph) -> list[Race]:
    """The races of a graph in program order, each as if those before it were mended.

    A wait of `second` for `first`, for each of them, leaves none.
    """
    streams = streams_of(graph)
    if len(streams) == 1:
        return []
    order, aliases = GraphOrder(streams), Aliases(graph)
    latest: dict[Node, _Latest] = {}
    found: list[Race] = []
    for node in graph.nodes:
        order.add(node)
        if not _works(node):
            continue
        accesses = dict(_accesses(node, aliases))
        candidates = [
            Race(other, node, first_writes, writes)
            for root, writes in accesses.items()
            for other, first_writes in latest.get(root, _NONE).conflicting(writes)
            if stream_of(other) != stream_of(node)
        ]
        # A wait for a later node may order earlier ones too.
        for race in sorted(candidates, key=lambda race: order.step(race.first), reverse=True):
            if not order.precedes(race.first, node):
                found.append(race)
                order.wait_too(race.first)
        for root, writes in accesses.items():
            latest.setdefault(root, _Latest()).note(node, writes)
    return found


def insert_waits(gm: GraphModule, races: Sequence[Race]) -> None:
    """Let the second node of each race wait for its first, by an event recorded right after it."""
    graph = gm.graph
    taken = {event[0] for event in map(event_of, graph.nodes) if event is not None}
    tags: dict[Node, str] = {}
    for race in races:
        tag = tags.get(race.first)
        if tag is None:
            tag = tags[race.first] = free_tag(f"after {race.first.name}", taken)
            with graph.inserting_after(race.first):
                _mark(record_of(graph, tag), race.first)
        with graph.inserting_before(race.second):
            _mark(wait_for(graph, tag), race.second)


@dataclass(slots=True)
class _Latest:
    """Of one memory: the latest read and the latest write of each stream."""

    reads: dict[str | None, Node] = field(default_factory=dict)
    writes: dict[str | None, Node] = field(default_factory=dict)

    def conflicting(self, writes: bool) -> Iterator[tuple[Node, bool]]:
        """The accesses that another must be ordered after, and whether they write."""
        yield from ((node, True) for node in self.writes.values())
        if writes:
            yield from ((node, False) for node in self.reads.values())

    def note(self, node: Node, writes: bool) -> None:
        (self.writes if writes else self.reads)[stream_of(node)] = node


_NONE = _Latest()
_SIZES = {"int", "SymInt", "List[int]", "List[SymInt]"}


def _works(node: Node) -> bool:
    """Whether it uses memory when it runs: views, marks and sizes do not."""
    if node.op != "call_function" or is_mark(node.target) or is_view(node):
        return False
    if isinstance(node.target, torch._ops.OpOverload):
        schema = node.target._schema
        # What gives sizes and strides looks at no value; what gives nothing does, as assertions do.
        sizes_only = bool(schema.returns) and all(str(result.type) in _SIZES for result in schema.returns)
        return schema.is_mutable or not sizes_only
    return isinstance(node.target, torch._ops.HigherOrderOperator)


def _makes_tensors(node: Node) -> bool:
    """A number that an operator gives is the host's, and there when the operator has returned."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return True
    return any("Tensor" in str(result.type) for result in node.target._schema.returns)


def _accesses(node: Node, aliases: Aliases) -> Iterator[tuple[Node, bool]]:
    """The nodes that made each memory it uses, and whether it writes that; writes come last."""
    for used in node.all_input_nodes:
        yield from ((root, False) for root in aliases.roots(used))
    for written in written_nodes(node):
        yield from ((root, True) for root in aliases.roots(written))
    if _makes_tensors(node):
        yield from ((root, True) for root in aliases.made_by(node))


def _mark(mark: Node, beside: Node) -> None:
    put_on(mark, stream_of(beside))
    if "stack_trace" in beside.meta:
        mark.meta["stack_trace"] = beside.meta["stack_trace"]


def _named(node: Node) -> str:
    stream, line = stream_of(node), source_lines.of_node(node)
    where = "the default stream" if stream is None else f"stream {stream!r}"
    return f"{node.target} on {where}{f' ({line})' if line else ''}"
