"""Which cases of a product of parameters `make test` runs: each value is in one of them, not each with each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest
from devices import simulator

Case = Sequence[tuple[str, object]]


def covering(cases: Sequence[Case]) -> list[int]:
    """The positions of cases in which each value of each parameter is, in order; always the same ones.

    Method: greedy; of the cases that have most of what is missing, the first.
    """
    had = [set(case) for case in cases]
    missing = set[tuple[str, object]]().union(*had)
    taken = []
    while missing:
        best = max(range(len(cases)), key=lambda position: (len(had[position] & missing), -position))
        missing -= had[best]
        taken.append(best)
    return sorted(taken)


def sampled(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Without the cases of which `covering` needs none: of tests that are marked so, and of all on a simulated device.

    What holds for each value on the CPU, together with each other, is asked there of another runtime, not of them.
    """
    groups = defaultdict[tuple[object, ...], list[int]](list)
    for position, item in enumerate(items):
        device = _parameters(item).get("device")
        is_simulated = isinstance(device, str) and simulator(device) is not None
        if is_simulated or item.get_closest_marker("sampled"):
            groups[item.path, getattr(item, "originalname", item.name), device].append(position)
    left_out = set[int]()
    for group in groups.values():
        # Values may have no hash, and cases of one value have the same object.
        cases = [[(name, id(value)) for name, value in _parameters(items[each]).items()] for each in group]
        kept = covering(cases) if all(cases) else range(len(cases))
        left_out.update(set(group) - {group[each] for each in kept})
    return [item for position, item in enumerate(items) if position not in left_out]


def asks_a_device(item: pytest.Item) -> bool:
    """Not if it is among tests that run on each device, and the same on all: with `--device` it is left to the CPU."""
    return "device" in getattr(item, "fixturenames", ()) or item.path.parent.name not in ("conformance", "torchair")


def _parameters(item: pytest.Item) -> dict[str, object]:
    call = getattr(item, "callspec", None)
    return {} if call is None else call.params
