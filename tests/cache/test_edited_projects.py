"""A second start after an edit gives what eager gives: a file is only used where this process would trace the same.

`--edits N` takes N random edits, `--full-sweep` takes back each edit, not only those by which something comes and goes.
"""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path

import pytest
from edited_project import ADDS, EDITS, render
from starts import Starts


def check(starts: Starts, script: Path, **environment: str) -> float:
    """The result, which is right."""
    got, expected, _ = starts.run(script, **environment)
    assert got == pytest.approx(expected, rel=1e-5)
    return float(expected)


def files(cache: Path) -> dict[Path, int]:
    """When each was written."""
    return {path: path.stat().st_mtime_ns for path in cache.rglob("*.airgraph")}


@pytest.fixture(scope="module")
def first_start(starts: Starts, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, float]:
    """The project before any edit, a cache that only a start of it has written, and its result."""
    folder = tmp_path_factory.mktemp("first_start")
    result = check(starts, render({}, folder / "project", folder / "cache"))
    return folder / "project", (folder / "cache").rename(folder / "written"), result


@pytest.mark.parametrize("edited", EDITS)
def test_an_edit_is_seen(
    edited: str, starts: Starts, first_start: tuple[Path, Path, float], request: pytest.FixtureRequest
) -> None:
    project, written, first = first_start
    cache = written.with_name("cache")
    shutil.rmtree(cache, ignore_errors=True)
    shutil.copytree(written, cache)
    results = [first]
    versions = list(range(1, len(EDITS[edited])))
    if edited in ADDS or request.config.getoption("--full-sweep"):
        # The edit is taken back.
        versions.append(0)
    for version in versions:
        script = render({edited: version}, project, cache)
        results.append(check(starts, script))
    # Each edit changes what eager gives.
    different = results[: len(EDITS[edited])]
    assert all(a != pytest.approx(b, rel=1e-4) for a, b in itertools.combinations(different, 2))
    known = files(cache)
    assert known
    check(starts, script)
    # Of a start that was seen before, the file is used.
    assert files(cache) == known


def test_random_edits(starts: Starts, other_starts: Starts, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    count = request.config.getoption("--edits")
    chance = random.Random(count)
    state: dict[str, int] = {}
    cache = tmp_path / "cache"
    again = 0
    for number in range(count):
        name = chance.choice(list(EDITS))
        state[name] = chance.randrange(len(EDITS[name]))
        negates = {"PROJECT_NEGATES": "1"} if chance.random() < 0.3 else {"PROJECT_NEGATES": ""}
        seed = chance.choice(("1", "2"))
        seeded = starts if seed == "1" else other_starts
        # Two checkouts of the project share the cache.
        script = render(state, tmp_path / f"checkout_{chance.randrange(2)}", cache)
        try:
            check(seeded, script, **negates)
            if chance.random() < 0.1:
                # Nothing was edited: the file of before is used.
                known, again = files(cache), again + 1
                check(seeded, script, **negates)
                assert files(cache) == known, "it was traced again"
        except AssertionError as error:
            raise AssertionError(f"start {number}, {state}, {negates}, seed {seed}: {error}") from error
    assert count < 100 or again
