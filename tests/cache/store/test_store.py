"""The folder of a cache: for its user alone, and nothing in it makes a start hang, fail or run what others wrote."""

from __future__ import annotations

import os
import stat
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cached_functions import cached
from filelock import FileLock
from torch import Tensor

from airgraph.cache.format.fingerprint import Fingerprint
from airgraph.cache.store import folder
from airgraph.cache.store.folder import Store
from airgraph.cache.store.layout import AIRGRAPH, Function
from airgraph.cache.store.ranks import ALONE
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


@pytest.mark.parametrize("others", [0o020, 0o002])
@pytest.mark.parametrize("which", ["the file", "its folder", "the root"])
def test_what_others_may_write_is_not_read(which: str, others: int, tmp_path: Path) -> None:
    file = start(tmp_path)
    opened = {"the file": file, "its folder": file.parent, "the root": tmp_path}[which]
    opened.chmod(mode(opened) | others)
    with pytest.warns(UserWarning, match=r"others may write .*chmod go-w"):
        start(tmp_path, strict=False)


def test_what_belongs_to_somebody_else_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(tmp_path)
    if os.geteuid() == 0:
        for path in (tmp_path, *tmp_path.rglob("*")):
            os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.warns(UserWarning, match="belongs to the user"):
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
    made: list[tuple[Path, int]] = []
    original = os.open

    def noted(path: Any, flags: int, *given: Any, **named: Any) -> int:
        if flags & os.O_CREAT:
            made.append((Path(os.fsdecode(path)), flags))
        return original(path, flags, *given, **named)

    monkeypatch.setattr(os, "open", noted)
    folders = {start(tmp_path / name).parent for name in ("one", "two")}
    drafts = [each for each in made if each[0].name != ".lock"]
    # Of a graph, its folder's index, and the key; each beside what it becomes.
    assert len(drafts) == 6 and len({path.name for path, _ in drafts}) == 6
    assert {path.parent for path, _ in drafts} == folders | {tmp_path / "one", tmp_path / "two"}
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
        assert [len(call._read) for call in calls] == [1, 1]
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
    call = cached(double, tmp_path, dynamic=False, strict=False)
    call(torch.ones(2))
    (file,) = call.files
    with FileLock(file.parent / ".lock"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for size in range(3, 7):
            torch.testing.assert_close(call(torch.ones(size)), torch.full((size,), 2.0))
    # One warning, however many graphs are traced.
    (message,) = [str(each.message) for each in caught]
    assert "has held the lock" in message
    assert list(tmp_path.rglob("*.airgraph")) == [file]
    torch.testing.assert_close(call(torch.ones(7)), torch.full((7,), 2.0))
    assert len(list(tmp_path.rglob("*.airgraph"))) == 2


def test_only_the_right_one_of_many_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a number, a text, a class, a list or a dict's keys tells them apart, and whatever came first."""

    class Plain:
        pass

    def of(number: int, what: str) -> Callable[[Tensor], Tensor]:
        class Model(torch.nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                held = self.held
                if isinstance(held, dict):
                    return x * len(held)
                if isinstance(held, Plain):
                    return x * held.number
                return x * (len(held) if isinstance(held, (str, list)) else held)

        model, plain = Model(), Plain()
        plain.number = number
        held = {"number": number, "text": "x" * number, "list": [0] * number, "object": plain}
        model.held = held[what] if what in held else {f"key{i}": i for i in range(number)}
        return model.forward

    opened: list[Path] = []
    original = Store.read

    def noted(self: Store, path: Path) -> Any:
        opened.append(path)
        return original(self, path)

    for what in ("number", "text", "list", "object", "keys"):
        for number in range(1, 10):
            cached(of(number, what), tmp_path / what, dynamic=False)(torch.ones(2))
        with monkeypatch.context() as patched:
            patched.setattr(Store, "read", noted)
            for number in (1, 5, 9):
                opened.clear()
                call = cached(of(number, what), tmp_path / what, dynamic=False)
                torch.testing.assert_close(call(torch.ones(2)), torch.full((2,), float(number)))
                assert len(opened) == 1, (what, number)


def test_an_index_that_is_damaged_or_missing(tmp_path: Path) -> None:
    file = start(tmp_path)
    index = file.parent / ".index"
    for damage in (index.unlink, lambda: index.write_text("nothing"), lambda: index.chmod(0o666)):
        damage()
        assert start(tmp_path) == file
        cached(double, tmp_path, dynamic=False)(torch.ones(5))
        file.parent.joinpath("graph_1.airgraph").unlink(missing_ok=True)


def _store(root: Path, name: str) -> Store:
    function = Function(name, f"{name}()", name, name, True, Fingerprint({"torch": "2"}), "", ALONE)
    return Store.of(root, AIRGRAPH, function)


def test_a_lock_that_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_MOST_WAIT_S", 2.0)
    store = _store(tmp_path, "function")
    with store.locked() as writes:
        assert writes
    waits = []
    with FileLock(store.folder / ".lock"):
        for _ in range(3):
            begin = time.monotonic()
            with store.locked() as writes:
                assert not writes
            waits.append(time.monotonic() - begin)
    assert waits[0] >= 2.0 > max(waits[1:])
    with store.locked() as writes:
        assert writes


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("nowhere", path)])
def test_a_lock_that_is_no_file(make: Callable[[Path], None], tmp_path: Path) -> None:
    file = start(tmp_path)
    file.unlink()
    (file.parent / ".lock").unlink()
    make(file.parent / ".lock")
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


def test_a_function_with_a_long_name(tmp_path: Path) -> None:
    stores = [_store(tmp_path, name) for name in ("f" * 300, "f" * 299 + "g")]
    assert stores[0].folder != stores[1].folder
    for store in stores:
        store.folder.mkdir(parents=True)
        assert store.files() == []
