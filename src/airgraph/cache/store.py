"""The folder of cached graphs: files that are read whole or not at all, and written at once or not at all."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from airgraph.cache.manifest import Manifest
from airgraph.errors import CacheError

__all__ = ["SUFFIX", "Store", "default_folder", "read_manifest"]

SUFFIX = ".airgraph"
_VARIABLE = "AIRGRAPH_CACHE_DIR"


def default_folder() -> Path:
    """`graphs` in AIRGRAPH_CACHE_DIR, or else in the user's cache folder."""
    given = os.environ.get(_VARIABLE)
    if given:
        return Path(given) / "graphs"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "airgraph" / "graphs"


@dataclass(frozen=True, slots=True)
class Store:
    """The graphs of one function under one fingerprint, `graph_0.airgraph` and so on."""

    folder: Path
    fingerprint: str

    @classmethod
    def of(cls, root: Path, function: str, fingerprint: str, rank: str) -> Store:
        """root/function/fingerprint[/rank]; nothing is made before something is written."""
        folder = root / re.sub(r"[^A-Za-z0-9_.-]+", "_", function) / fingerprint
        return cls(folder / rank if rank else folder, fingerprint)

    def files(self) -> list[Path]:
        """The files there, in the order in which they were first written."""
        found = self.folder.glob(f"graph_*{SUFFIX}")
        return sorted(found, key=lambda path: (len(path.name), path.name))

    def read(self, path: Path) -> Manifest:
        """Raises CacheError, naming the file, where it cannot be read or is damaged."""
        return read_manifest(path)

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
        path = over or self._next()
        # The process's number keeps two writers apart where locks do not work.
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                draft.write_text(manifest.to_text(), encoding="utf-8")
                os.replace(draft, path)
            finally:
                draft.unlink(missing_ok=True)
        except OSError as error:
            raise CacheError(f"cannot write {path}: {error.strerror}. Give another cache_dir.") from error
        return path

    def _next(self) -> Path:
        taken = {path.name for path in self.files()}
        names = (f"graph_{number}{SUFFIX}" for number in itertools.count())
        return self.folder / next(name for name in names if name not in taken)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time traces for this folder, and the others find its graph; without locks, all do."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / ".lock")
            lock.acquire()
        except (OSError, NotImplementedError):
            lock = None
        with nullcontext() if lock is None else lock:
            try:
                yield
            finally:
                if lock is not None:
                    lock.release()


def read_manifest(path: Path) -> Manifest:
    """Raises CacheError, naming the file, where it cannot be read or is damaged."""
    try:
        return Manifest.from_text(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CacheError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CacheError(f"{path}: not a cache file: it is not text") from error
    except CacheError as error:
        raise CacheError(f"{path}: {error}") from error
