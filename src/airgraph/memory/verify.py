"""An independent check of a memory plan; shares no code with the planner."""

from __future__ import annotations

from collections.abc import Sequence

from airgraph.memory.plan import Lifetime, Plan
from airgraph.program.order import WorkOrder

__all__ = ["violations"]


def violations(lifetimes: Sequence[Lifetime], order: WorkOrder, plan: Plan, *, alignment: int) -> list[str]:
    """Everything that is wrong with a plan, in plain words; empty for a plan that is right.

    Method: what each step is reached from, as sets of bits; then the buffers in the order of their offsets, each
    compared with all that reach into it.
    """
    if len(plan.offsets) != len(lifetimes):
        return [f"{len(lifetimes)} lifetimes, {len(plan.offsets)} offsets"]
    found = []
    for i, (life, offset) in enumerate(zip(lifetimes, plan.offsets, strict=True)):
        if offset % alignment:
            found.append(f"buffer {i} at {offset} is not aligned to {alignment}")
        if offset < 0 or offset + life.nbytes > plan.peak:
            found.append(f"buffer {i} at {offset} of {life.nbytes} bytes is outside the arena of {plan.peak}")
    before = _reached_from(order)
    uses = [sum(1 << use for use in life.uses) for life in lifetimes]
    # The steps that are done before any use of a buffer.
    past = [_in_all([before[use] for use in life.uses]) for life in lifetimes]
    reaching: list[int] = []
    for new in sorted(range(len(lifetimes)), key=lambda i: plan.offsets[i]):
        start = plan.offsets[new]
        reaching = [old for old in reaching if plan.offsets[old] + lifetimes[old].nbytes > start]
        if lifetimes[new].nbytes == 0:
            continue
        for old in reaching:
            if uses[old] & ~past[new] and uses[new] & ~past[old]:
                one, other = sorted((old, new))
                found.append(f"buffers {one} and {other} overlap and may be used at the same time")
        reaching.append(new)
    return found


def _reached_from(order: WorkOrder) -> list[int]:
    """For each step the set of those that are done before it."""
    before: list[int] = []
    latest: dict[int, int] = {}
    for step, stream in enumerate(order.stream_of):
        reached = 0
        sources = [*order.waits.get(step, ()), *([latest[stream]] if stream in latest else [])]
        for source in sources:
            reached |= before[source] | 1 << source
        before.append(reached)
        latest[stream] = step
    return before


def _in_all(sets: list[int]) -> int:
    common = sets[0]
    for each in sets[1:]:
        common &= each
    return common
