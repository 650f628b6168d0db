"""From lifetimes to offsets in one arena."""

from __future__ import annotations

import bisect
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from airgraph.program.order import WorkOrder

__all__ = ["ALIGNMENT", "Lifetime", "Plan", "PlanError", "assign_offsets", "lower_bound"]

ALIGNMENT = 64


class PlanError(ValueError):
    """A lifetime makes no sense."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer of `nbytes`, and the steps that use it.

    Its bytes are another's only where all uses of the one are certainly done before any of the other begins.
    """

    uses: frozenset[int]
    nbytes: int

    @classmethod
    def between(cls, first: int, last: int, nbytes: int) -> Lifetime:
        """Of a buffer that these two steps use, and perhaps others between them."""
        return cls(frozenset((first, last)), nbytes)


@dataclass(frozen=True, slots=True)
class Plan:
    """offsets: bytes, in the order of the lifetimes. peak: the arena's size in bytes."""

    offsets: tuple[int, ...]
    peak: int


def assign_offsets(lifetimes: Sequence[Lifetime], order: WorkOrder, *, alignment: int = ALIGNMENT) -> Plan:
    """Place buffers in one arena so that what is used at the same time never overlaps.

    lifetimes: uses are steps of the order, sizes in bytes. alignment: bytes, a power of two.
    Returns offsets in input order and the arena's peak in bytes.
    Raises PlanError for a negative size, a buffer without uses or with one that is no step, or a bad alignment.
    Method: greedy by size (Pisarchyk and Lee, 2020), each buffer in the tightest gap that holds it.
    """
    if alignment < 1 or alignment & (alignment - 1):
        raise PlanError(f"alignment: expected a power of two, got {alignment}")
    for i, life in enumerate(lifetimes):
        if life.nbytes < 0 or not life.uses or min(life.uses) < 0 or max(life.uses) >= len(order):
            steps = f"{min(life.uses, default=None)} to {max(life.uses, default=None)}"
            raise PlanError(
                f"lifetime {i}: expected nbytes >= 0 and uses among {len(order)} steps, got {life.nbytes} and {steps}"
            )
    placed: list[_Placed] = []  # sorted by offset
    offsets = [0] * len(lifetimes)
    peak = 0
    for i in sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].nbytes, min(lifetimes[i].uses), i)):
        size = _aligned(lifetimes[i].nbytes, alignment)
        if size == 0:
            continue
        begins, ends = _span(lifetimes[i], order)
        offset = _tightest_gap(_in_the_way(placed, begins, ends), size)
        offsets[i] = offset
        bisect.insort(placed, (offset, offset + size, begins, ends))
        peak = max(peak, offset + size)
    return Plan(tuple(offsets), peak)


def lower_bound(lifetimes: Sequence[Lifetime], order: WorkOrder, *, alignment: int = ALIGNMENT) -> int:
    """No plan has a smaller peak: the most aligned bytes that are live at one step, whatever the device schedules.

    A buffer is live at a step that is between two of its uses, or one of them. On one stream no bound is higher.
    """
    most = 0
    for step in range(len(order)):
        live = 0
        for life in lifetimes:
            if step in life.uses or (
                any(order.precedes(use, step) for use in life.uses)
                and any(order.precedes(step, use) for use in life.uses)
            ):
                live += _aligned(life.nbytes, alignment)
        most = max(most, live)
    return most


# How many steps are done, of each stream; a number where there is one stream, which is faster.
_Done = Any
# Offset and end in bytes; what is done before the first use, and with the last.
_Placed = tuple[int, int, _Done, _Done]


def _span(life: Lifetime, order: WorkOrder) -> tuple[_Done, _Done]:
    if order.streams == 1:
        return min(life.uses), max(life.uses) + 1
    return order.done_before(life.uses), order.done_with(life.uses)


def _in_the_way(placed: Sequence[_Placed], begins: _Done, ends: _Done) -> list[tuple[int, int]]:
    """Where those lie, by offset, that are neither done before a buffer is used nor used after it is done."""
    if isinstance(begins, int):
        return [(at, to) for at, to, other_begins, other_ends in placed if other_ends > begins and ends > other_begins]
    return [
        (at, to)
        for at, to, other_begins, other_ends in placed
        if not _is_done(other_ends, begins) and not _is_done(ends, other_begins)
    ]


def _is_done(steps: tuple[int, ...], done: tuple[int, ...]) -> bool:
    return all(map(operator.le, steps, done))


def _tightest_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    best: int | None = None
    best_waste = 0
    free_from = 0
    for offset, end in taken:
        gap = offset - free_from
        if gap >= size and (best is None or gap - size < best_waste):
            best, best_waste = free_from, gap - size
        free_from = max(free_from, end)
    return free_from if best is None else best


def _aligned(nbytes: int, alignment: int) -> int:
    return (nbytes + alignment - 1) & -alignment
