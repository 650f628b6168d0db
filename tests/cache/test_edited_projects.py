"""A second start after an edit gives what eager gives: a file is only used where this process would trace the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from edited_project import EDITS, render
from starts import Starts


@pytest.fixture(scope="module")
def starts() -> Iterator[Starts]:
    with Starts(PYTHONHASHSEED="1") as made:
        yield made


def check(starts: Starts, script: Path, **environment: str) -> int:
    """How many graphs the start used, after a look at its result."""
    got, expected, files = starts.run(script, **environment)
    assert got == pytest.approx(expected, rel=1e-5)
    return int(files)


@pytest.mark.parametrize("edited", EDITS)
def test_an_edit_is_seen(edited: str, starts: Starts, tmp_path: Path) -> None:
    for version in (*range(len(EDITS[edited])), 0):
        check(starts, render({edited: version}, tmp_path / "project", tmp_path / "cache"))


def test_random_edits(starts: Starts, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    count = request.config.getoption("--edits")
    chance = random.Random(count)
    state: dict[str, int] = {}
    for number in range(count):
        # Two checkouts of the project share the cache.
        name = chance.choice(list(EDITS))
        state[name] = chance.randrange(len(EDITS[name]))
        negates = {"PROJECT_NEGATES": "1"} if chance.random() < 0.3 else {"PROJECT_NEGATES": ""}
        script = render(state, tmp_path / f"checkout_{chance.randrange(2)}", tmp_path / "cache")
        try:
            check(starts, script, **negates)
        except AssertionError as error:
            raise AssertionError(f"start {number}, {state}, {negates}: {error}") from error
