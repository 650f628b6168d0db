"""The sample that `make test` takes of a product of parameters."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import Part, covering, sampled

_CASES = [tuple(zip("abc", values, strict=True)) for values in product((1, 2, 3, 4), (1, 2), (1, 2, 3))]


def _item(name: str, marks: list[Any], **params: object) -> Any:
    """What `sampled` looks at in an item of pytest."""
    found = {mark.name: mark for mark in marks}
    return SimpleNamespace(
        path=Path("test_some.py"),
        originalname=name,
        callspec=SimpleNamespace(params=params),
        get_closest_marker=found.get,
        iter_markers=lambda name: (mark for mark in marks if mark.name == name),
    )


def _product(name: str, *more: pytest.MarkDecorator) -> list[Any]:
    """Three letters, each with a number of two and one of two pairs that are listed together."""
    marks = [
        pytest.mark.parametrize("letter", ["a", "b", "c"]).mark,
        pytest.mark.parametrize("number", [1, 2]).mark,
        pytest.mark.parametrize(("left", "right"), [(1, 1), (1, 2), (2, 1)]).mark,
        *(each.mark for each in more),
    ]
    return [
        _item(name, marks, letter=letter, number=number, left=left, right=right)
        for letter in "abc"
        for number in (1, 2)
        for left, right in ((1, 1), (1, 2), (2, 1))
    ]


def _of(items: list[Any], *names: str) -> set[tuple[object, ...]]:
    return {tuple(item.callspec.params[name] for name in names) for item in items}


def test_each_value_is_in_one_of_few_cases() -> None:
    taken = covering(_CASES)
    assert len(taken) == 4 and taken == sorted(taken)
    assert {pair for each in taken for pair in _CASES[each]} == {pair for case in _CASES for pair in case}


def test_one_parameter_is_taken_whole() -> None:
    assert covering([[("a", value)] for value in range(5)]) == [0, 1, 2, 3, 4]


@given(st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), max_size=3), max_size=12))
def test_nothing_is_lost_of_any_cases(cases: list[list[Part]]) -> None:
    taken = covering(cases)
    assert taken == covering(cases)
    everything = {part for case in cases for part in case}
    assert {part for each in taken for part in cases[each]} == everything and len(taken) <= len(everything)


def test_a_marked_test_is_sampled_and_others_are_not() -> None:
    marked, other = _product("test_marked", pytest.mark.sampled), _product("test_other")
    kept = sampled([*marked, *other, _item("test_without", [])])
    of_marked = [item for item in kept if item.originalname == "test_marked"]
    assert len(of_marked) == 3 and len(kept) == 3 + len(other) + 1
    assert _of(of_marked, "letter") == {("a",), ("b",), ("c",)} and _of(of_marked, "number") == {(1,), (2,)}


def test_values_that_are_listed_together_stay_together() -> None:
    kept = sampled(_product("test_marked", pytest.mark.sampled))
    # Alone, two pairs would have each of the numbers.
    assert _of(kept, "left", "right") == {(1, 1), (1, 2), (2, 1)}


def test_all_are_sampled_on_a_simulated_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sampling.simulator", {"npu": "simcann"}.get)
    cases = {
        device: [
            _item("test_it", [], device=device, letter=letter, number=number) for letter in "ab" for number in (1, 2)
        ]
        for device in ("cpu", "npu")
    }
    kept = sampled([*cases["cpu"], *cases["npu"]])
    assert [item.callspec.params["device"] for item in kept] == ["cpu"] * 4 + ["npu"] * 2
