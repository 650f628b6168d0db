"""Each kind of guard: what holds, what breaks it, and how it is written."""

from __future__ import annotations

import enum
from typing import Any

import pytest
import torch
from quantized_weight import Int8Weight

from airgraph.cache.format.guard import Guard
from airgraph.cache.format.guards import (
    Apart,
    Contains,
    Distinct,
    Elements,
    Equals,
    Excludes,
    Group,
    Has,
    Inherits,
    Keys,
    Lacks,
    Length,
    Member,
    Named,
    OfClass,
    Same,
    Wraps,
    guard_from,
)
from airgraph.cache.format.source_path import SourcePath, parse
from airgraph.errors import CacheError
from airgraph.program.code_identity import identity_of
from airgraph.program.collectives import name_and_ranks


class Plain:
    inherited = 1

    def __init__(self, **held: Any) -> None:
        vars(self).update(held)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


X = parse("L['x']")
ONE = object()
INT8 = Int8Weight(torch.ones(2, 3, dtype=torch.int8), torch.ones(2, 1), [1, 3])
WIDER = Int8Weight(torch.ones(2, 4, dtype=torch.int8), torch.ones(2, 1), [1, 3])
# A guard, values that it holds for, and values that break it.
CASES: list[tuple[Guard, list[Any], list[Any]]] = [
    (Equals(X, 1), [1], [1.0, True, 2, "1", None]),
    (Equals(X, 0.0), [0.0], [-0.0, 0, float("nan")]),
    (Equals(X, (1, 2.0)), [(1, 2.0)], [(1, 2), [1, 2.0]]),
    (Equals(X, torch.float32), [torch.float32], [torch.float64]),
    (OfClass.of(X, [1]), [[2, 3]], [(1,), {1: 1}]),
    (OfClass.of(X, Plain()), [Plain(a=1)], [3]),
    (Named(X, identity_of(len)), [len], [max]),
    (Member.of(X, Color.RED), [Color.RED], [Color.BLUE, 1]),
    (Length(X, 2), [[1, 2], "ab"], [[1], 3]),
    (Keys(X, ["a", "b"]), [{"a": 1, "b": 2}], [{"b": 1, "a": 2}, {"a": 1}]),
    (Elements(X, [3]), [{3}], [{4}, set()]),
    (Contains(X, "a"), [{"a": 1}, {"a"}], [{"b": 1}, set()]),
    (Contains(X, None), [{None}], [{1}, set()]),
    (Excludes(X, "a"), [{"b": 1}], [{"a": 1}]),
    (Excludes(X, None), [{1}], [{None}]),
    (Has(X, "a"), [Plain(a=1)], [Plain()]),
    (Lacks(X, "a"), [Plain()], [Plain(a=1)]),
    (Inherits(X, "inherited"), [Plain()], [Plain(inherited=2)]),
    (Same(X, "L['y']"), [ONE], [object()]),
    (Distinct(X, ["L['y']"]), [object()], [ONE]),
    (Apart(X, ["L['y']", "L['y']"]), [object()], [ONE]),
    (Wraps.of(X, INT8), [Int8Weight(torch.zeros(2, 3, dtype=torch.int8), torch.ones(2, 1), [1, 3])], [WIDER, ONE]),
]


def _reads(value: Any) -> Any:
    def read(path: SourcePath) -> Any:
        return {"x": value, "y": ONE}[path.root]

    return read


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].kind} {case[0].expected!r}"[:40])
def test_what_holds_and_what_breaks_it(case: tuple[Guard, list[Any], list[Any]]) -> None:
    guard, right, wrong = case
    for value in right:
        assert guard.broken(_reads(value)) is None
    for value in wrong:
        reason = guard.broken(_reads(value))
        assert reason is not None and "L['x']" in reason


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].kind} {case[0].expected!r}"[:40])
def test_it_is_written_and_read(case: tuple[Guard, list[Any], list[Any]]) -> None:
    guard = case[0]
    data = guard.to_data()
    assert data[:2] == [guard.kind, "L['x']"]
    again = guard_from(data)
    assert type(again) is type(guard) and again == guard


def test_a_group_is_its_name_and_ranks() -> None:
    distributed = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        world, other = distributed.group.WORLD, distributed.new_group([0])
        guard = Group(X, name_and_ranks(world))
        assert guard_from(guard.to_data()) == guard and guard.broken(_reads(world)) is None
        for value in (other, None, "0"):
            assert "L['x']" in str(guard.broken(_reads(value)))
    finally:
        distributed.destroy_process_group()


def test_every_kind_is_tried() -> None:
    tried = {type(guard) for guard, _, _ in CASES} | {Group}
    assert tried == set(Guard.__subclasses__())


@pytest.mark.parametrize(
    "data",
    [["runs", "L['x']", 1], ["has", "L['x']", 3], ["keys", "L['x']", "a"], ["distinct", "L['x']", {"tuple": []}]],
)
def test_what_is_no_guard_is_refused(data: list[Any]) -> None:
    with pytest.raises(CacheError, match="unknown kind of guard|unexpected"):
        guard_from(data)


def test_an_exception_of_a_signal_handler_is_not_an_answer() -> None:
    class Interrupted(Exception):
        pass

    def interrupted(path: SourcePath) -> Any:
        raise Interrupted

    def fails(path: SourcePath) -> Any:
        raise RuntimeError("a property that cannot be read")

    with pytest.raises(Interrupted):
        Equals(X, 1).broken(interrupted)
    assert "cannot be read" in str(Equals(X, 1).broken(fails))
