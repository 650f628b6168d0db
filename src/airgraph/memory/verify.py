"""An independent check of a memory plan; shares no code with the planner."""

from __future__ import annotations

from collections.abc import Sequence

from airgraph.memory.plan import Lifetime, Plan

__all__ = ["violations"]


def violations(lifetimes: Sequence[Lifetime], plan: Plan, *, alignment: int) -> list[str]:
    """Everything that is wrong with a plan, in plain words; empty for a plan that is right.

    Method: walks the steps in order and keeps the set of live buffers; every buffer that comes alive is compared
    with all that are live.
    """
    found = []
    if len(plan.offsets) != len(lifetimes):
        return [f"{len(lifetimes)} lifetimes, {len(plan.offsets)} offsets"]
    for i, (life, offset) in enumerate(zip(lifetimes, plan.offsets, strict=True)):
        if offset % alignment:
            found.append(f"buffer {i} at {offset} is not aligned to {alignment}")
        if offset < 0 or offset + life.nbytes > plan.peak:
            found.append(f"buffer {i} at {offset} of {life.nbytes} bytes is outside the arena of {plan.peak}")
    live: set[int] = set()
    births: dict[int, list[int]] = {}
    deaths: dict[int, list[int]] = {}
    for i, life in enumerate(lifetimes):
        births.setdefault(life.first, []).append(i)
        deaths.setdefault(life.last, []).append(i)
    for step in sorted(births.keys() | deaths.keys()):
        for new in births.get(step, ()):
            start, stop = plan.offsets[new], plan.offsets[new] + lifetimes[new].nbytes
            for old in live:
                other_start, other_stop = plan.offsets[old], plan.offsets[old] + lifetimes[old].nbytes
                if start < other_stop and other_start < stop:
                    found.append(f"buffers {old} and {new} overlap while both are live at step {step}")
            live.add(new)
        live.difference_update(deaths.get(step, ()))
    return found
