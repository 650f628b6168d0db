"""The folder of cached graphs: files that are read whole or not at all, and written at once or not at all."""

from __future__ import annotations

import itertools
import os
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from airgraph import environment
from airgraph.cache.format.fingerprint import Fingerprint
from airgraph.cache.format.guard import Read
from airgraph.cache.format.manifest import Manifest
from airgraph.cache.format.signed import check_head, signed_data, signed_text
from airgraph.cache.store.index import Index
from airgraph.cache.store.layout import Function, Layout
from airgraph.errors import CacheError

__all__ = ["Store", "default_folder", "naming", "read_manifest", "remove_empty"]

# What a message asks for.
_ANOTHER = "another cache_dir, or --dir on the command line"
# What files of a cache are signed with.
_KEY, _KEY_BYTES = ".key", 32
_LOCK, _INDEX = ".lock", ".index"
# What is in a folder beside its graphs.
_BESIDE = (_LOCK, _INDEX)
_LARGEST_FILE = 1 << 30
# Tracing a large model takes a minute; a process that was stopped holds its lock for ever.
_MOST_WAIT_S = 120.0
# As many graphs as a folder holds, before the one written longest ago gives way.
_MOST_FILES = 64
_OLD_DRAFT_S = 3600.0
# Folders whose lock another process has held for too long.
_given_up: set[Path] = set()
# Folders of functions that are in this process.
_opened: set[Path] = set()


def default_folder() -> Path:
    """`graphs` in AIRGRAPH_CACHE_DIR, or else in the user's cache folder."""
    return environment.cache_folder() / "graphs"


@dataclass(frozen=True, slots=True)
class Store:
    """The graphs of one function under one fingerprint, in folders and files named by a layout.

    Only its user may read and write what it makes; what others may write is refused.
    """

    root: Path
    layout: Layout
    function: Function
    folder: Path

    @classmethod
    def of(cls, root: Path, layout: Layout, function: Function) -> Store:
        """Nothing is made before something is written."""
        store = cls(root, layout, function, root.joinpath(*filter(None, layout.folders(function))))
        _opened.add(store.of_state(store.folder))
        return store

    @property
    def fingerprint(self) -> Fingerprint:
        return self.function.fingerprint

    def files(self) -> list[Path]:
        """The files there, in the order in which they were first written."""
        found = self.folder.glob(self.layout.pattern)
        return sorted(found, key=lambda path: (len(path.name), path.name))

    def why_not(self, read: Read) -> Mapping[Path, str]:
        """The files that cannot serve a call, with what they were traced for, found without opening them."""
        try:
            index = Index.from_data(self.data(self.folder / _INDEX))
        except (CacheError, OSError):
            return {}
        found = {}
        for path in self.files():
            with suppress(OSError):
                reason = index.ruled_out(path.name, path.stat().st_size, read)
                if reason is not None:
                    found[path] = reason
        return found

    def under_other_fingerprints(self) -> Iterator[tuple[Path, str]]:
        """Of each other fingerprint of the function the file written last, and which of its parts differ."""
        for path in self.newest_under_other_fingerprints():
            with suppress(OSError, CacheError):
                difference = read_manifest(path).fingerprint.difference(self.fingerprint.parts)
                if difference is not None:
                    yield path, difference

    def newest_under_other_fingerprints(self) -> list[Path]:
        """Of each other state of the function the file written last, the newest of them first."""
        own = self.of_state(self.folder)
        found: list[tuple[int, Path]] = []
        for folder in own.parent.glob(self.layout.states(self.function)):
            with suppress(OSError, ValueError):
                if folder != own:
                    files = folder.glob(self.layout.within(self.function))
                    found.append(max((path.lstat().st_mtime_ns, path) for path in files))
        return [path for _, path in sorted(found, reverse=True)]

    def of_state(self, path: Path) -> Path:
        """The folder of all that a path of this function shares its fingerprint with."""
        return self.root.joinpath(*path.relative_to(self.root).parts[: self.layout.depth])

    def is_in_use(self, path: Path) -> bool:
        """Whether a function of this process has the fingerprint of this path, perhaps another one of the same name."""
        return self.of_state(path) in _opened

    def read(self, path: Path) -> Manifest:
        """Raises CacheError, naming the file, where it cannot be read, is damaged, or others may write it."""
        data = self.data(path)
        with naming(path):
            return Manifest.from_data(data)

    def data(self, path: Path) -> Mapping[str, Any]:
        """What the file says. Raises CacheError as `read` does."""
        for folder in (self.folder, *self.folder.parents):
            _check_own(folder, folder.stat())
            if folder == self.root:
                break
        return _data(path, self.root)

    def version(self, path: Path) -> object:
        """What differs once another process has written a file anew."""
        try:
            state = path.stat()
        except OSError:
            return None
        return state.st_ino, state.st_mtime_ns, state.st_size

    def write(self, manifest: Manifest, *, over: Path | None = None) -> Path:
        """Write a graph's file, at once: nobody ever sees a part of it. over: the file that it replaces.

        Raises CacheError where the folder cannot be written.
        """
        try:
            self._make_folder()
            self._remove_drafts()
            text = manifest.to_text(_key(self.root, make=True))
            path = over or self._same(text) or self._next()
            _write(path, text)
            self._write_index()
            self.layout.saved(self.function, path)
        except OSError as error:
            where = error.filename or self.folder
            raise CacheError(f"cannot write {where}: {error.strerror}. Give {_ANOTHER}.") from error
        return path

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """One process at a time traces for this folder, and the others find its graph; where locks do not work, all do.

        The value says whether to write: not if another process has held the lock for too long. After one wait in vain,
        nobody waits for that folder again until the lock is free.
        """
        lock = None
        try:
            self._make_folder()
            lock = FileLock(self.folder / _LOCK, mode=0o600)
            lock.acquire(timeout=0 if self.folder in _given_up else _MOST_WAIT_S)
            _given_up.discard(self.folder)
        except Timeout:
            _given_up.add(self.folder)
            yield False
            return
        except (OSError, NotImplementedError):
            lock = None
        try:
            yield True
        finally:
            if lock is not None:
                lock.release()

    def _write_index(self) -> None:
        files, sizes = {}, {}
        for path in self.files():
            with suppress(OSError, CacheError):
                files[path.name], sizes[path.name] = self.data(path), path.stat().st_size
        _write(self.folder / _INDEX, signed_text(Index.of(files, sizes).to_data(), _key(self.root)))

    def _make_folder(self) -> None:
        for folder in (*reversed(self.folder.parents), self.folder):
            with suppress(FileExistsError):
                # Those around the cache are as the user wants them.
                folder.mkdir(0o700 if folder == self.root or self.root in folder.parents else 0o777)

    def _same(self, text: str) -> Path | None:
        """The file that holds this already, as of a graph that needs what its process had not loaded yet."""
        content = text.encode()
        for path in self.files():
            with suppress(OSError, CacheError):
                if path.stat().st_size == len(content) and _content(path) == content:
                    return path
        return None

    def _next(self) -> Path:
        files = self.files()
        if len(files) >= _MOST_FILES:
            return min(files, key=lambda path: path.stat().st_mtime_ns)
        taken = {path.name for path in files}
        names = map(self.layout.file, itertools.count())
        return self.folder / next(name for name in names if name not in taken)

    def _remove_drafts(self) -> None:
        """Those of processes that ended while they wrote."""
        for draft in (*self.folder.glob(f".{self.layout.pattern}.*"), *self.folder.glob(f"{_INDEX}.*")):
            with suppress(OSError):
                if time.time() - draft.lstat().st_mtime > _OLD_DRAFT_S:
                    draft.unlink()


def remove_empty(folder: Path, root: Path) -> None:
    """Remove a folder without graphs, with its lock, and those above it up to `root`. Raises OSError."""
    while folder != root and not any(each.name not in _BESIDE for each in folder.iterdir()):
        for name in _BESIDE:
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()
        folder = folder.parent


def read_manifest(path: Path) -> Manifest:
    """Raises CacheError, naming the file, where it cannot be read, is damaged, or others may write it."""
    parents = path.absolute().parents
    root = next((folder for folder in parents if (folder / _KEY).exists()), path.parent)
    for folder in parents[: parents.index(root) + 1] if root in parents else ():
        _check_own(folder, folder.stat())
    data = _data(path, root)
    with naming(path):
        return Manifest.from_data(data)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Names the file in a CacheError."""
    try:
        yield
    except CacheError as error:
        raise CacheError(f"{path}: {error}") from error


def _data(path: Path, root: Path) -> Mapping[str, Any]:
    try:
        with naming(path):
            text = _content(path).decode()
            # Beside what is no cache file there is no key either, which would tell nobody what is wrong.
            check_head(text)
    except OSError as error:
        raise CacheError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CacheError(f"{path}: not a cache file: it is not text") from error
    key = _key(root)
    with naming(path):
        return signed_data(text, key)


def _content(path: Path) -> bytes:
    # Without waiting for somebody to write into a pipe, and not through a link that somebody may have put there.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            raise CacheError("not a cache file: it is no ordinary file")
        if state.st_size > _LARGEST_FILE:
            raise CacheError(f"not a cache file: it has {state.st_size} bytes")
        _check_own(path, state)
        return file.read(_LARGEST_FILE)


def _check_own(path: Path, state: os.stat_result) -> None:
    """Raises CacheError for what somebody else could have written."""
    if state.st_uid not in (os.geteuid(), 0):
        raise CacheError(f"{path} belongs to the user {state.st_uid}, not to this one. Give {_ANOTHER}.")
    if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CacheError(f"others may write {path}, and so what this process would run. Use `chmod go-w {path}`.")


def _key(root: Path, *, make: bool = False) -> bytes:
    """What the files below a root are signed with; a copy of the whole folder takes it along."""
    path = root / _KEY
    if make and not path.exists():
        draft = root / f"{_KEY}.{secrets.token_hex(8)}"
        with os.fdopen(_create(draft), "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        # Of several processes the first; a link to a name that is there fails.
        with suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink(missing_ok=True)
    try:
        key = _content(path)
    except FileNotFoundError as error:
        raise CacheError(f"{path} is missing, by which the files beside it are checked") from error
    except OSError as error:
        raise CacheError(f"cannot read {path}: {error.strerror}. Remove it, or give {_ANOTHER}.") from error
    if len(key) != _KEY_BYTES:
        raise CacheError(f"{path} has {len(key)} bytes instead of {_KEY_BYTES}. Remove it, or give {_ANOTHER}.")
    return key


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name.removeprefix('.')}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(_create(draft), "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _create(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
