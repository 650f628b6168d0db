"""The planner against an independent verifier, on one stream and on several."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from orders import ORDERS, reaches

import airgraph
from airgraph.errors import InternalError
from airgraph.memory.plan import Lifetime, Plan, PlanError, assign_offsets, lower_bound
from airgraph.memory.verify import violations
from airgraph.program.order import WorkOrder
from airgraph.runtime.cpu import assemble

_LINE = WorkOrder.line(53)
_LIFETIMES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 12), st.integers(0, 5000)).map(
        lambda t: Lifetime.between(t[0], t[0] + t[1], t[2])
    ),
    max_size=60,
)


@st.composite
def _on_streams(draw: st.DrawFn) -> tuple[WorkOrder, list[Lifetime]]:
    order = draw(ORDERS)
    uses = st.frozensets(st.integers(0, len(order) - 1), min_size=1, max_size=4)
    return order, draw(st.lists(st.builds(Lifetime, uses, st.integers(0, 300)), max_size=20))


@given(_LIFETIMES, st.sampled_from([1, 16, 64, 4096]))
def test_live_buffers_never_overlap(lifetimes: list[Lifetime], alignment: int) -> None:
    plan = assign_offsets(lifetimes, _LINE, alignment=alignment)
    assert violations(lifetimes, _LINE, plan, alignment=alignment) == []


@given(_on_streams())
def test_what_several_streams_use_at_once_never_overlaps(given: tuple[WorkOrder, list[Lifetime]]) -> None:
    order, lifetimes = given
    plan = assign_offsets(lifetimes, order)
    assert violations(lifetimes, order, plan, alignment=64) == []
    # By the definition, with no method of either.
    for (one, at), (other, to) in itertools.combinations(zip(lifetimes, plan.offsets, strict=True), 2):
        if at < to + other.nbytes and to < at + one.nbytes and one.nbytes and other.nbytes:
            ways = [[reaches(order, a, b) for a in x.uses for b in y.uses] for x, y in ((one, other), (other, one))]
            assert any(all(way) for way in ways)
    assert lower_bound(lifetimes, order) <= plan.peak


@given(_LIFETIMES)
def test_peak_is_between_the_lower_bound_and_the_sum(lifetimes: list[Lifetime]) -> None:
    plan = assign_offsets(lifetimes, _LINE)
    assert lower_bound(lifetimes, _LINE) <= plan.peak <= sum((life.nbytes + 63) // 64 * 64 for life in lifetimes)


@given(_LIFETIMES)
def test_a_plan_is_that_of_looking_at_every_buffer(lifetimes: list[Lifetime]) -> None:
    placed: list[tuple[int, int, Lifetime]] = []
    expected = [0] * len(lifetimes)
    largest_first = sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].nbytes, min(lifetimes[i].uses), i))
    for i in largest_first:
        life, size = lifetimes[i], (lifetimes[i].nbytes + 63) // 64 * 64
        gaps, free_from = [], 0
        for at, to, other in sorted(placed, key=lambda each: each[:2]):
            if max(other.uses) >= min(life.uses) and max(life.uses) >= min(other.uses):
                gaps.append((at - free_from, free_from))
                free_from = max(free_from, to)
        if size:
            fitting = [gap for gap in gaps if gap[0] >= size]
            expected[i] = min(fitting)[1] if fitting else free_from
            placed.append((expected[i], expected[i] + size, life))
    assert assign_offsets(lifetimes, _LINE).offsets == tuple(expected)


@given(_LIFETIMES)
def test_plan_is_deterministic(lifetimes: list[Lifetime]) -> None:
    assert assign_offsets(lifetimes, _LINE) == assign_offsets(list(lifetimes), _LINE)


def test_buffers_that_never_meet_share_bytes() -> None:
    plan = assign_offsets([Lifetime.between(0, 1, 100), Lifetime.between(2, 3, 100)], _LINE)
    assert plan == Plan((0, 0), 128)


def test_a_buffer_dies_after_its_last_step_not_before() -> None:
    plan = assign_offsets([Lifetime.between(0, 2, 64), Lifetime.between(2, 3, 64)], _LINE)
    assert plan.peak == 128


def test_buffers_of_two_streams_share_bytes_only_after_a_wait() -> None:
    """Step 0 on one stream; 1 and 2 on another, of which the last waits for step 0."""
    lifetimes = [Lifetime(frozenset({0}), 64), Lifetime(frozenset({1}), 64), Lifetime(frozenset({2}), 64)]
    assert assign_offsets(lifetimes, WorkOrder([0, 1, 1])).peak == 128
    waits = WorkOrder([0, 1, 1], {2: [0]})
    assert assign_offsets(lifetimes, waits).offsets == (0, 64, 0)
    assert lower_bound(lifetimes, waits) == 64


@pytest.mark.parametrize(
    "bad",
    [Lifetime.between(0, 1, -1), Lifetime(frozenset(), 8), Lifetime.between(1, 53, 8), Lifetime.between(-1, 2, 8)],
)
def test_senseless_lifetimes_are_refused(bad: Lifetime) -> None:
    with pytest.raises(PlanError, match="lifetime 0: expected nbytes >= 0 and uses among 53 steps"):
        assign_offsets([bad], _LINE)


def test_alignment_must_be_a_power_of_two() -> None:
    with pytest.raises(PlanError, match="power of two, got 48"):
        assign_offsets([], _LINE, alignment=48)


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
    lifetimes = [Lifetime.between(0, 3, 64), Lifetime.between(1, 2, 64)]
    assert any(word in problem for problem in violations(lifetimes, _LINE, plan, alignment=64))


@given(_on_streams(), st.data())
def test_the_verifier_finds_every_overlap(given: tuple[WorkOrder, list[Lifetime]], data: st.DataObject) -> None:
    order, lifetimes = given
    offsets = tuple(64 * data.draw(st.integers(0, 6)) for _ in lifetimes)
    plan = Plan(offsets, 1000)
    wrong = False
    for (one, at), (other, to) in itertools.combinations(zip(lifetimes, offsets, strict=True), 2):
        if at < to + other.nbytes and to < at + one.nbytes and one.nbytes and other.nbytes:
            ways = [[reaches(order, a, b) for a in x.uses for b in y.uses] for x, y in ((one, other), (other, one))]
            wrong = wrong or not any(all(way) for way in ways)
    assert bool(violations(lifetimes, order, plan, alignment=64)) is wrong


@torch.no_grad()
def test_plans_are_verified_where_replays_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """With verify_every a wrong plan is an error of the capture, before anything runs on it."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return (x + 1).relu() @ (x * 2).sigmoid()

    def all_at_once(lifetimes: list[Lifetime], order: WorkOrder) -> Plan:
        return Plan((0,) * len(lifetimes), max((life.nbytes for life in lifetimes), default=0))

    monkeypatch.setattr(assemble, "assign_offsets", all_at_once)
    x = torch.rand(8, 8)
    with pytest.raises(InternalError, match="the memory plan is wrong, please report it: buffers 0 and 1 overlap"):
        torch.compile(program, backend="airgraph", options={"verify_every": 1})(x)
    monkeypatch.undo()
    torch.compiler.reset()
    airgraph.reset()
    compiled = torch.compile(program, backend="airgraph", options={"verify_every": 1})
    torch.testing.assert_close(compiled(x), program(x))
