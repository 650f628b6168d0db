"""Vector clocks against what a graph search finds."""

import pytest
from hypothesis import given
from orders import ORDERS, reaches

from airgraph.program.order import WorkOrder


@given(ORDERS)
def test_a_step_precedes_what_it_leads_to(order: WorkOrder) -> None:
    for step in range(len(order)):
        for other in range(len(order)):
            assert order.precedes(step, other) is reaches(order, step, other)


def test_steps_of_one_stream_follow_one_another() -> None:
    order = WorkOrder.line(3)
    assert len(order) == 3 and order.streams == 1
    assert [order.precedes(0, 0), order.precedes(0, 2), order.precedes(2, 1)] == [False, True, False]


def test_streams_are_ordered_by_waits_only() -> None:
    # Stream 0 does 0, 1, 4; stream 1 does 2, 3; step 3 waits for step 0, and step 4 for step 3.
    order = WorkOrder([0, 0, 1, 1, 0], {3: [0], 4: [3]})
    assert order.precedes(0, 3) and order.precedes(2, 4) and order.precedes(0, 4)
    assert not any(order.precedes(*pair) for pair in [(0, 2), (1, 3), (2, 1), (3, 1)])


@pytest.mark.parametrize("waits", [{1: [1]}, {0: [2]}, {2: [-1]}])
def test_nothing_waits_for_what_comes_later(waits: dict[int, list[int]]) -> None:
    with pytest.raises(ValueError, match="which is not before it"):
        WorkOrder([0, 1, 0], waits)
