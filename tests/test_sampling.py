"""The sample that `make test` takes of a product of parameters."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import asks_a_device, covering, sampled

_CASES = [tuple(zip("abc", values, strict=True)) for values in product((1, 2, 3, 4), (1, 2), (1, 2, 3))]


def test_each_value_is_in_one_of_few_cases() -> None:
    taken = covering(_CASES)
    assert len(taken) == 4 and taken == sorted(taken)
    assert {pair for each in taken for pair in _CASES[each]} == {pair for case in _CASES for pair in case}


def test_one_parameter_is_taken_whole() -> None:
    assert covering([[("a", value)] for value in range(5)]) == [0, 1, 2, 3, 4]


@given(st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), max_size=3), max_size=12))
def test_nothing_is_lost_of_any_cases_and_none_is_needless(cases: list[list[tuple[str, int]]]) -> None:
    taken = covering(cases)
    assert taken == covering(cases)
    assert {pair for each in taken for pair in cases[each]} == {pair for case in cases for pair in case}


@pytest.mark.sampled
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("letter", ["a", "b"])
def test_a_marked_test(number: int, letter: str, request: pytest.FixtureRequest) -> None:
    """Itself a part of what the next test looks at."""
    assert "sampled" in request.keywords


def test_only_marked_tests_are_sampled_here(request: pytest.FixtureRequest) -> None:
    cases = [item.name for item in request.session.items if item.name.startswith("test_a_marked_test")]
    of_a_sample = {"test_a_marked_test[a-1]", "test_a_marked_test[b-2]", "test_a_marked_test[a-3]"}
    everything = request.config.getoption("--full-sweep")
    assert everything or set(cases) <= of_a_sample
    kept = sampled(request.session.items)
    assert everything or kept == request.session.items
    assert all(map(asks_a_device, (item for item in kept if item.path.name == "test_sampling.py")))
