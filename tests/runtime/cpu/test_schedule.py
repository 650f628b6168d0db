"""Segments of several streams against a graph search, and what runs them against the program's order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from orders import ORDERS, reaches

from airgraph.program.order import WorkOrder
from airgraph.runtime.cpu.schedule import Segment, makespan, segments_of


def _order_of(segments: list[Segment]) -> tuple[WorkOrder, dict[int, int]]:
    """The order that segments keep, a step for each segment, and the segment of each call."""
    steps: dict[tuple[int, int], int] = {}
    done: dict[int, int] = {}
    waits: dict[int, list[int]] = {}
    place: dict[int, int] = {}
    for step, segment in enumerate(segments):
        done[segment.stream] = done.get(segment.stream, 0) + 1
        steps[segment.stream, done[segment.stream]] = step
        waits[step] = [steps[wait] for wait in segment.waits]
        place.update(dict.fromkeys(segment.calls, step))
    return WorkOrder([segment.stream for segment in segments], waits), place


@given(ORDERS, st.sets(st.integers(0, 23)))
def test_segments_keep_the_order_and_add_none(order: WorkOrder, on_caller: set[int]) -> None:
    segments = segments_of(order, on_caller)
    assert sorted(call for segment in segments for call in segment.calls) == list(range(len(order)))
    kept, place = _order_of(segments)
    for segment in segments:
        assert {order.stream_of[call] for call in segment.calls} == {segment.stream}
        assert {call in on_caller for call in segment.calls} == {segment.on_caller}
    for step in range(len(order)):
        for other in range(step + 1, len(order)):
            if order.stream_of[step] != order.stream_of[other]:
                assert kept.precedes(place[step], place[other]) is reaches(order, step, other)
            else:
                assert place[step] <= place[other]


@given(ORDERS, st.integers(1, 4))
def test_threads_take_no_longer_than_one_and_no_less_than_their_share(order: WorkOrder, threads: int) -> None:
    segments = segments_of(order)
    costs = [1.0 + step % 3 for step in range(len(order))]
    taken = makespan(segments, costs, threads, 0.0)
    assert sum(costs) / threads <= taken + 1e-9 and taken <= sum(costs) + 1e-9


def test_two_streams_take_half_the_time() -> None:
    segments = segments_of(WorkOrder([0, 1] * 8))
    assert makespan(segments, [1.0] * 16, 1, 0.5) == 16
    assert makespan(segments, [1.0] * 16, 2, 0.5) == 9
