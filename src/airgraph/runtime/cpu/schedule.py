"""From the order of a recording's calls to segments that threads take by turns; whether that is worth it."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from airgraph.program.order import WorkOrder

__all__ = ["Segment", "makespan", "segments_of"]


@dataclass(frozen=True, slots=True)
class Segment:
    """Calls of one stream that follow one another once so many segments of other streams are done.

    waits: (stream, how many of its segments). on_caller: only the thread that replays runs them.
    """

    stream: int
    calls: tuple[int, ...]
    waits: tuple[tuple[int, int], ...]
    on_caller: bool = False


def segments_of(order: WorkOrder, on_caller: Collection[int] = ()) -> list[Segment]:
    """The segments of an order, those of each stream in their order, and none before what it waits for.

    A segment begins at a call that waits and ends after one that is waited for. on_caller: calls that must run on the
    thread that replays.
    """
    held = set(on_caller)
    waits = {step: _needed(order, step) for step in range(len(order))}
    awaited = {other for found in waits.values() for other in found}
    segments: list[Segment] = []
    # Of each stream the calls of the segment that is open, how many are closed, and in which each call is.
    open_calls: dict[int, list[int]] = {}
    closed: dict[int, int] = {}
    place: dict[int, int] = {}

    def close(stream: int) -> None:
        calls = open_calls.pop(stream, None)
        if calls:
            closed[stream] = closed.get(stream, 0) + 1
            found = tuple(sorted((order.stream_of[other], place[other]) for other in waits[calls[0]]))
            segments.append(Segment(stream, tuple(calls), found, calls[0] in held))

    for step, stream in enumerate(order.stream_of):
        calls = open_calls.get(stream)
        if calls and (waits[step] or (calls[0] in held) != (step in held)):
            close(stream)
        open_calls.setdefault(stream, []).append(step)
        place[step] = closed.get(stream, 0) + 1
        if step in awaited:
            close(stream)
    for stream in list(open_calls):
        close(stream)
    return sorted(segments, key=lambda segment: segment.calls[0])


def makespan(segments: Sequence[Segment], costs: Sequence[float], threads: int, hand_over: float) -> float:
    """How long so many threads take that always run what is ready, in the unit of the costs.

    costs: of each call. hand_over: from one thread's end of a segment to another's beginning of what waits for it.
    Method: list scheduling (Graham, 1969).
    """
    ended: dict[tuple[int, int], tuple[float, int]] = {}
    free = [(0.0, thread) for thread in range(threads)]
    done: dict[int, int] = {}
    end = 0.0
    for segment in segments:
        number = done[segment.stream] = done.get(segment.stream, 0) + 1
        before = [*segment.waits, *([(segment.stream, number - 1)] if number > 1 else [])]
        at, thread = min(
            free, key=lambda each: max(each[0], *(_seen(ended[b], each[1], hand_over) for b in before), 0.0)
        )
        begins = max([at, *(_seen(ended[b], thread, hand_over) for b in before)])
        if thread != 0 and not before:
            begins = max(begins, hand_over)
        ends = begins + sum(costs[call] for call in segment.calls)
        ended[segment.stream, number] = (ends, thread)
        free.remove((at, thread))
        heapq.heappush(free, (ends, thread))
        end = max(end, ends + (hand_over if thread != 0 else 0.0))
    return end


def _seen(ended: tuple[float, int], thread: int, hand_over: float) -> float:
    at, by = ended
    return at if by == thread else at + hand_over


def _needed(order: WorkOrder, step: int) -> list[int]:
    """What a step waits for and would not come after anyway; of each stream the last."""
    found: dict[int, int] = {}
    for other in order.waits_elsewhere(step):
        stream = order.stream_of[other]
        found[stream] = max(other, found.get(stream, other))
    before = order.before_on_its_stream(step)
    return [
        other
        for other in found.values()
        if not (before is not None and (other == before or order.precedes(other, before)))
        and not any(order.precedes(other, third) for third in found.values() if third != other)
    ]
