"""From lifetimes to offsets in one arena."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ALIGNMENT", "Lifetime", "Plan", "PlanError", "assign_offsets", "lower_bound"]

ALIGNMENT = 64


class PlanError(ValueError):
    """A lifetime makes no sense."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer of `nbytes`, live from step `first` to step `last`, both included."""

    first: int
    last: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """offsets: bytes, in the order of the lifetimes. peak: the arena's size in bytes."""

    offsets: tuple[int, ...]
    peak: int


def assign_offsets(lifetimes: Sequence[Lifetime], *, alignment: int = ALIGNMENT) -> Plan:
    """Place buffers in one arena so that live ranges never overlap.

    lifetimes: inclusive step ranges, sizes in bytes. alignment: bytes, a power of two.
    Returns offsets in input order and the arena's peak in bytes.
    Raises PlanError for a negative size, a range that ends before it begins, or a bad alignment.
    Method: greedy by size (Pisarchyk and Lee, 2020), each buffer in the tightest gap that holds it.
    """
    if alignment < 1 or alignment & (alignment - 1):
        raise PlanError(f"alignment: expected a power of two, got {alignment}")
    for i, life in enumerate(lifetimes):
        if life.nbytes < 0 or life.last < life.first:
            raise PlanError(f"lifetime {i}: expected nbytes >= 0 and first <= last, got {life}")
    order = sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].nbytes, lifetimes[i].first, i))
    offsets = [0] * len(lifetimes)
    placed: list[tuple[int, int, int, int]] = []  # (offset, end, first, last), sorted by offset
    peak = 0
    for i in order:
        life = lifetimes[i]
        size = _aligned(life.nbytes, alignment)
        if size == 0:
            continue
        offset = _tightest_gap(placed, life, size)
        offsets[i] = offset
        bisect.insort(placed, (offset, offset + size, life.first, life.last))
        peak = max(peak, offset + size)
    return Plan(tuple(offsets), peak)


def lower_bound(lifetimes: Sequence[Lifetime], *, alignment: int = ALIGNMENT) -> int:
    """The largest sum of aligned bytes live at one step: no plan has a smaller peak."""
    changes: dict[int, int] = {}
    for life in lifetimes:
        size = _aligned(life.nbytes, alignment)
        changes[life.first] = changes.get(life.first, 0) + size
        changes[life.last + 1] = changes.get(life.last + 1, 0) - size
    live = most = 0
    for step in sorted(changes):
        live += changes[step]
        most = max(most, live)
    return most


def _tightest_gap(placed: Sequence[tuple[int, int, int, int]], life: Lifetime, size: int) -> int:
    best: int | None = None
    best_waste = 0
    free_from = 0
    for offset, end, first, last in placed:
        if last < life.first or first > life.last:
            continue
        gap = offset - free_from
        if gap >= size and (best is None or gap - size < best_waste):
            best, best_waste = free_from, gap - size
        free_from = max(free_from, end)
    return free_from if best is None else best


def _aligned(nbytes: int, alignment: int) -> int:
    return (nbytes + alignment - 1) & -alignment
