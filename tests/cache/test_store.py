"""The folder of a cache: for its user alone, and nothing in it makes a start hang, fail or run what others wrote."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from cached_functions import cached
from filelock import FileLock
from torch import Tensor

from airgraph.cache.store import folder
from airgraph.errors import CacheError


def double(x: Tensor) -> Tensor:
    return x * 2


def start(folder: Path, *, strict: bool = True) -> Path:
    """What a new process does: the file that serves it, after a look at the result."""
    call = cached(double, folder, strict=strict)
    torch.testing.assert_close(call(torch.ones(3)), torch.full((3,), 2.0))
    return call.files[0]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_its_user_may_read_and_write(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        file = start(tmp_path / "cache")
    finally:
        os.umask(before)
    made = list((tmp_path / "cache").rglob("*"))
    assert file in made and all(mode(path) == (0o700 if path.is_dir() else 0o600) for path in made)
    assert mode(tmp_path / "cache") == 0o700


@pytest.mark.parametrize("which", ["the file", "its folder", "the root"])
def test_what_others_may_write_is_not_read(which: str, tmp_path: Path) -> None:
    file = start(tmp_path)
    opened = {"the file": file, "its folder": file.parent, "the root": tmp_path}[which]
    opened.chmod(mode(opened) | 0o002)
    with pytest.warns(UserWarning, match=r"others may write .*chmod go-w"):
        start(tmp_path, strict=False)


def test_a_pipe_in_place_of_a_file(tmp_path: Path) -> None:
    file = start(tmp_path)
    file.unlink()
    os.mkfifo(file, 0o600)
    with pytest.warns(UserWarning, match="it is no ordinary file"):
        assert start(tmp_path, strict=False).is_file()


@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "pipe"])
def test_a_key_that_is_no_file(kind: str, tmp_path: Path) -> None:
    start(tmp_path / "cache")
    key = tmp_path / "cache" / ".key"
    key.rename(tmp_path / "elsewhere")
    if kind == "folder":
        key.mkdir()
    elif kind == "pipe":
        os.mkfifo(key, 0o600)
    else:
        key.symlink_to(tmp_path / ("elsewhere" if kind == "link" else "nowhere"))
    call = cached(double, tmp_path / "cache", strict=False)
    with pytest.warns(UserWarning, match=r"\.key|no ordinary file"):
        torch.testing.assert_close(call(torch.ones(2)), torch.full((2,), 2.0))
    with pytest.raises(CacheError, match=r"\.key|no ordinary file"):
        cached(double, tmp_path / "cache")(torch.ones(2))


def test_drafts_have_names_that_nobody_foresees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, int]] = []
    original = os.open

    def noted(path: Any, flags: int, *given: Any, **named: Any) -> int:
        if flags & os.O_CREAT:
            made.append((Path(os.fsdecode(path)).name, flags))
        return original(path, flags, *given, **named)

    monkeypatch.setattr(os, "open", noted)
    for name in ("one", "two"):
        start(tmp_path / name)
    drafts = [each for each in made if each[0] != ".lock"]
    assert len(drafts) == 4 and len({name for name, _ in drafts}) == 4
    assert all(flags & os.O_EXCL and flags & os.O_NOFOLLOW for _, flags in drafts)


def test_graphs_of_many_objects_of_one_class(tmp_path: Path) -> None:
    """Those that a flag or the size of what they hold tells apart are not built to find the right one."""

    class Flagged(torch.nn.Module):
        def __init__(self, flag: int) -> None:
            super().__init__()
            self.flag = flag
            self.linear = torch.nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x) * self.flag

    class Holder:
        def __init__(self, width: int) -> None:
            self.linear = torch.nn.Linear(width, 2)

        def step(self, x: Tensor) -> Tensor:
            return self.linear(x)

    for number in range(2, 7):
        cached(Flagged(number).forward, tmp_path)(torch.ones(2))
        cached(Holder(number).step, tmp_path)(torch.ones(number))
    for number in range(2, 7):
        flagged, holder = Flagged(number), Holder(number)
        calls = cached(flagged.forward, tmp_path), cached(holder.step, tmp_path)
        torch.testing.assert_close(calls[0](torch.ones(2)), flagged(torch.ones(2)).detach())
        torch.testing.assert_close(calls[1](torch.ones(number)), holder.step(torch.ones(number)).detach())
        assert [len(call._entries) for call in calls] == [1, 1]
        # Another call of the object may want another file all the same.
        flagged.flag = 2 + number % 5
        torch.testing.assert_close(calls[0](torch.ones(2)), flagged(torch.ones(2)).detach())
    assert len(list(tmp_path.rglob("graph_*"))) == 10


def test_a_link_in_place_of_a_file(tmp_path: Path) -> None:
    file = start(tmp_path / "cache")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    file.unlink()
    file.symlink_to(elsewhere)
    with pytest.warns(UserWarning, match="cannot read"):
        assert start(tmp_path / "cache", strict=False).is_file()
    assert elsewhere.read_text() == "precious" and not file.is_symlink()


def test_a_lock_that_is_never_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_MOST_WAIT_S", 0.2)
    file = start(tmp_path)
    file.unlink()
    with FileLock(file.parent / ".lock"), pytest.warns(UserWarning, match="has held the lock of .* for too long"):
        start(tmp_path, strict=False)
    assert not file.exists()
    assert start(tmp_path).exists()


def test_files_of_another_folder_are_made_anew(tmp_path: Path) -> None:
    file = start(tmp_path / "one")
    other = start(tmp_path / "other")
    other.write_bytes(file.read_bytes())
    with pytest.warns(UserWarning, match="the checksum is wrong"):
        start(tmp_path / "other", strict=False)
    start(tmp_path / "other")


def test_a_folder_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_MOST_FILES", 3)
    for size in range(2, 8):
        call = cached(double, tmp_path, dynamic=False)
        torch.testing.assert_close(call(torch.ones(size)), torch.full((size,), 2.0))
    assert len(list(tmp_path.rglob("*.airgraph"))) == 3


def test_models_of_other_sizes_have_folders_of_their_own(tmp_path: Path) -> None:
    folders = set()
    for size in (3, 4, 3):
        model = torch.nn.Linear(size, 2)
        call = cached(model.forward, tmp_path)
        torch.testing.assert_close(call(torch.ones(size)), model(torch.ones(size)).detach())
        folders.add(call.files[0].parent)
    assert len(folders) == 2
