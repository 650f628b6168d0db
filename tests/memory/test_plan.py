"""The planner against an independent verifier."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airgraph.memory.plan import Lifetime, Plan, PlanError, assign_offsets, lower_bound
from airgraph.memory.verify import violations

_LIFETIMES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 12), st.integers(0, 5000)).map(
        lambda t: Lifetime(t[0], t[0] + t[1], t[2])
    ),
    max_size=60,
)


@given(_LIFETIMES, st.sampled_from([1, 16, 64, 4096]))
def test_live_buffers_never_overlap(lifetimes: list[Lifetime], alignment: int) -> None:
    plan = assign_offsets(lifetimes, alignment=alignment)
    assert violations(lifetimes, plan, alignment=alignment) == []


@given(_LIFETIMES)
def test_peak_is_between_the_lower_bound_and_the_sum(lifetimes: list[Lifetime]) -> None:
    plan = assign_offsets(lifetimes)
    assert lower_bound(lifetimes) <= plan.peak <= sum((life.nbytes + 63) // 64 * 64 for life in lifetimes)


@given(_LIFETIMES)
def test_plan_is_deterministic(lifetimes: list[Lifetime]) -> None:
    assert assign_offsets(lifetimes) == assign_offsets(list(lifetimes))


def test_buffers_that_never_meet_share_bytes() -> None:
    plan = assign_offsets([Lifetime(0, 1, 100), Lifetime(2, 3, 100)])
    assert plan == Plan((0, 0), 128)


def test_a_buffer_dies_after_its_last_step_not_before() -> None:
    plan = assign_offsets([Lifetime(0, 2, 64), Lifetime(2, 3, 64)])
    assert plan.peak == 128


@pytest.mark.parametrize("bad", [Lifetime(0, 1, -1), Lifetime(2, 1, 8)])
def test_senseless_lifetimes_are_refused(bad: Lifetime) -> None:
    with pytest.raises(PlanError, match="lifetime 0"):
        assign_offsets([bad])


def test_alignment_must_be_a_power_of_two() -> None:
    with pytest.raises(PlanError, match="power of two, got 48"):
        assign_offsets([], alignment=48)


@pytest.mark.parametrize(
    ("plan", "word"),
    [
        (Plan((0, 0), 64), "overlap"),
        (Plan((0, 63), 128), "aligned"),
        (Plan((0, 64), 64), "outside"),
        (Plan((0,), 64), "offsets"),
    ],
)
def test_the_verifier_finds_bad_plans(plan: Plan, word: str) -> None:
    lifetimes = [Lifetime(0, 3, 64), Lifetime(1, 2, 64)]
    assert any(word in problem for problem in violations(lifetimes, plan, alignment=64))
