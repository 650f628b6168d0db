"""From lifetimes to offsets in one arena."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

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
    placed = _PlacedOnOneStream(len(order)) if order.streams == 1 else _PlacedOnSeveral(order)
    offsets = [0] * len(lifetimes)
    peak = 0
    for i in sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].nbytes, min(lifetimes[i].uses), i)):
        size = _aligned(lifetimes[i].nbytes, alignment)
        if size == 0:
            continue
        offset = _tightest_gap(placed.in_the_way(lifetimes[i]), size)
        offsets[i] = offset
        placed.add(offset, offset + size, lifetimes[i])
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


class _PlacedOnOneStream:
    """Buffers that have their place, found by the steps that they live through.

    Steps are taken by the block, since most buffers live for few of them, and there are many buffers.
    """

    def __init__(self, steps: int) -> None:
        # Offset, end in bytes, first step and the one after the last.
        self._of_block: list[list[tuple[int, int, int, int]]] = [[] for _ in range(steps // _BLOCK_STEPS + 1)]

    def add(self, offset: int, end: int, life: Lifetime) -> None:
        first, last = min(life.uses), max(life.uses)
        for block in range(first // _BLOCK_STEPS, last // _BLOCK_STEPS + 1):
            self._of_block[block].append((offset, end, first, last))

    def in_the_way(self, life: Lifetime) -> list[tuple[int, int]]:
        """Where those lie, by offset, that live at a step at which this buffer does."""
        first, last = min(life.uses), max(life.uses)
        blocks = self._of_block[first // _BLOCK_STEPS : last // _BLOCK_STEPS + 1]
        # Those that live through several blocks are found several times.
        return sorted(
            {
                (offset, end)
                for block in blocks
                for offset, end, other_first, other_last in block
                if other_first <= last and first <= other_last
            }
        )


_BLOCK_STEPS = 16


class _PlacedOnSeveral:
    """The same on several streams, where a buffer has no first and last step: all are looked at.

    How many steps are done of each stream is one number, a field of bits for each, of which the highest stays free:
    set in one side of a difference of two such numbers, it is left where that stream's count is not the smaller.
    """

    def __init__(self, order: WorkOrder) -> None:
        self._order = order
        self._bits = len(order).bit_length() + 1
        self._free = sum(1 << (self._bits * (stream + 1) - 1) for stream in range(order.streams))
        # Offset and end in bytes; what is done before the first use, and with the last. Sorted by offset.
        self._placed: list[tuple[int, int, int, int]] = []

    def add(self, offset: int, end: int, life: Lifetime) -> None:
        bisect.insort(self._placed, (offset, end, *self._begin_and_end(life)))

    def in_the_way(self, life: Lifetime) -> list[tuple[int, int]]:
        """Where those lie, by offset, that are neither done before this buffer is used nor used after it is done."""
        begin, end = self._begin_and_end(life)
        free = self._free
        return [
            (at, to)
            for at, to, other_begin, other_end in self._placed
            if (begin - other_end) & free != free and (other_begin - end) & free != free
        ]

    def _begin_and_end(self, life: Lifetime) -> tuple[int, int]:
        """What is done before the first use, with the free bits set, and what is with the last."""
        done_before, done_with = self._order.done_before(life.uses), self._order.done_with(life.uses)
        return self._packed(done_before) | self._free, self._packed(done_with)

    def _packed(self, done: Sequence[int]) -> int:
        return sum(count << (self._bits * stream) for stream, count in enumerate(done))


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
