"""Which cases of a product of parameters `make test` runs: each value is in one of them, not each with each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest
from devices import simulator

# A parameter, or those that one `parametrize` names, and their values.
Part = tuple[str, object]


def covering(cases: Sequence[Sequence[Part]]) -> list[int]:
    """The positions of cases in which each value of each parameter is, in order; always the same ones.

    Method: greedy; of the cases that have most of what is missing, the first.
    """
    had = [set(case) for case in cases]
    missing = set[Part]().union(*had)
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
        values = getattr(item, "callspec", None) and item.callspec.params  # type: ignore[attr-defined]
        if values:
            device = values.get("device")
            is_simulated = isinstance(device, str) and simulator(device) is not None
            if is_simulated or item.get_closest_marker("sampled"):
                groups[item.path, item.originalname, device].append(position)  # type: ignore[attr-defined]
    left_out = set[int]()
    for group in groups.values():
        kept = covering([_parts(items[each]) for each in group])
        left_out.update(set(group) - {group[each] for each in kept})
    return [item for position, item in enumerate(items) if position not in left_out]


def _parts(item: pytest.Item) -> list[Part]:
    """What the cases of a test are a product of: values that one `parametrize` lists together belong together."""
    values = dict(item.callspec.params)  # type: ignore[attr-defined]
    parts: list[Part] = []
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        # Values may have no hash, and cases of one value have the same object.
        parts.append((",".join(names), tuple(id(values.pop(name.strip())) for name in names)))
    return [*parts, *((name, id(value)) for name, value in values.items())]
