"""Whether a result can be written is asked of what a path leads to, and nothing is left behind."""

from pathlib import Path

import pytest

from airgraph.cli.failure import UsageProblem
from airgraph.cli.result_files import check_writable


def test_a_link_to_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "later.json")
    check_writable(link)
    assert [path.name for path in tmp_path.iterdir()] == ["link.json"]
    link.write_text("{}")
    check_writable(link)
    assert (tmp_path / "later.json").read_text() == "{}"


@pytest.mark.parametrize("name", ["none/report.json", f"{'n' * 300}/report.json"])
def test_a_folder_that_is_not_there_or_cannot_be(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match=r"there is no folder|cannot be written"):
        check_writable(tmp_path / name)
