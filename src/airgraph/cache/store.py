"""The folder of cached graphs: files that are read whole or not at all, and written at once or not at all."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from airgraph.cache.manifest import Manifest
from airgraph.errors import CacheError

__all__ = ["SUFFIX", "Store", "Stored", "default_folder", "read_manifest"]

SUFFIX = ".airgraph"
_VARIABLE = "AIRGRAPH_CACHE_DIR"


def default_folder() -> Path:
    """`graphs` in AIRGRAPH_CACHE_DIR, or else in the user's cache folder."""
    given = os.environ.get(_VARIABLE)
    if given:
        return Path(given) / "graphs"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "airgraph" / "graphs"


@dataclass(frozen=True, slots=True)
class Stored:
    """A graph's file and what is in it."""

    path: Path
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Store:
    """The graphs of one function under one fingerprint, `graph_0.airgraph` and so on."""

    folder: Path

    @classmethod
    def of(cls, root: Path, function: str, fingerprint: str, rank: str) -> Store:
        """root/function/fingerprint[/rank]; nothing is made before something is written."""
        folder = root / re.sub(r"[^A-Za-z0-9_.-]+", "_", function) / fingerprint
        return cls(folder / rank if rank else folder)

    def files(self) -> list[Path]:
        """The files there, in the order in which they were first written."""
        found = self.folder.glob(f"graph_*{SUFFIX}")
        return sorted(found, key=lambda path: (len(path.name), path.name))

    def read(self, path: Path) -> Stored:
        """Raises CacheError, naming the file, where it cannot be read or is damaged."""
        return Stored(path, read_manifest(path))

    def write(self, manifest: Manifest, *, over: Path | None = None) -> Stored:
        """Write a graph's file, at once: nobody ever sees a part of it. over: the file that it replaces.

        Raises CacheError where the folder cannot be written.
        """
        path = over or self.folder / f"graph_{len(self.files())}{SUFFIX}"
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
        return Stored(path, manifest)

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
