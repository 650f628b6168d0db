"""Things that are edited between two starts: the second is right, and reads the file where nothing was edited."""

from __future__ import annotations

from textwrap import dedent

import pytest
from edits import BASE, EDITS, START
from starts import Outcome, Starts, check_right, outcomes_of, write


@pytest.fixture(scope="module")
def edited(starts: Starts, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Outcome]]:
    """Of each edit the outcomes of a start before it, of one after it, of one that finds all as it was, and of one
    after it was taken back."""
    folder = tmp_path_factory.mktemp("edited")
    found: dict[str, list[Outcome]] = {name: [] for name in EDITS}
    for version in (0, 1, 1, 0):
        files = {"start": START, "base": BASE}
        for name, each in EDITS.items():
            files[f"{name}/edited"] = dedent(each.edited).replace("EDITED", each.versions[version])
            files[f"{name}/kept"] = each.kept
        for name, outcome in outcomes_of(starts, write(folder / "project", files), folder / "cache").items():
            found[name].append(outcome)
    return found


@pytest.mark.parametrize("name", list(EDITS))
def test_an_edit_is_seen(name: str, edited: dict[str, list[Outcome]]) -> None:
    check_right(edited[name])


@pytest.mark.parametrize("name", list(EDITS))
def test_without_an_edit_the_file_is_read(name: str, edited: dict[str, list[Outcome]]) -> None:
    first, second, third, _ = edited[name]
    if name == "assume_constant_result":
        assert [each.files for each in (first, second, third)] == [0, 0, 0]
    else:
        # What is imported by calling the function is missing before.
        assert (first.traced, second.traced, third.traced) == (1, 1, name == "imported_within")
        assert third.files == second.files + (name == "imported_within")
