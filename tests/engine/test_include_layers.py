"""Each folder of the engine includes what csrc/README.md says that it may, and no more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_CSRC = Path(__file__).parents[2] / "csrc"
_FOLDERS = sorted(path.name for path in _CSRC.iterdir() if path.is_dir())


def _allowed(folder: str) -> set[str]:
    """Folders, or files without their endings, of the last cell of the folder's row."""
    (row,) = re.findall(rf"^\| `{folder}/` \|.*\| ([^|]*) \|$", (_CSRC / "README.md").read_text(), re.MULTILINE)
    return set(_FOLDERS) if row == "all" else set(re.findall(r"[a-z_]+(?:/[a-z_]+)?", row)) - {"and"}


@pytest.mark.parametrize("folder", _FOLDERS)
def test_a_folder_uses_what_its_row_says(folder: str) -> None:
    allowed, used = _allowed(folder), set()
    for path in [*(_CSRC / folder).rglob("*.h"), *(_CSRC / folder).rglob("*.cpp")]:
        for name in re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE):
            included = (path.parent / name).resolve().relative_to(_CSRC.resolve())
            if included.parts[0] not in {folder, *allowed}:
                used.add(str(included.with_suffix("")))
    assert used <= allowed
