"""Removes graphs that an older state of the program, of airgraph or of PyTorch has left behind."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from airgraph.cache.format.manifest import Manifest
from airgraph.cache.format.signed import is_of_other_format
from airgraph.cache.store.folder import Store, read_manifest, remove_empty
from airgraph.errors import CacheError

__all__ = ["remove_outdated"]

log = logging.getLogger(__name__)

# Fingerprints beside the one of now: another checkout or environment may use the same folder.
_KEPT = 2
# Parts that no option of a program decides: with another one of these, graphs are of another time or place.
_OF_CODE = {"format", "airgraph", "torch", "torch_npu", "python", "passes", "the function's sources"}
# What a program chooses, and the code of that which it chose.
_CHOSEN, _OF_CHOSEN = "the program's passes", "their sources"


def remove_outdated(store: Store, written: Manifest) -> None:
    """Remove the graphs of a function that were made under other code, but for those of the newest two fingerprints.

    Graphs under other options are in use by whoever has these, and stay; so do those of other programs, whose functions
    may have the same name: each script is `__main__`. written: the graph that was written just now.
    """
    for folder, difference in list(_outdated(store, _file_of(written)))[_KEPT:]:
        log.info("%s is removed: made under %s", folder, difference)
        # Another process may do the same, or may be writing there.
        with suppress(OSError):
            for path in list(folder.glob(store.layout.within(store.function))):
                path.unlink()
                remove_empty(path.parent, store.root)


def _outdated(store: Store, file: str | None) -> Iterator[tuple[Path, str]]:
    """Folders of other fingerprints, the newest first, with what differs."""
    for path in store.newest_under_other_fingerprints():
        with suppress(OSError):
            difference = _difference(path, store, file)
            if difference is not None:
                yield store.of_state(path), difference


def _difference(path: Path, store: Store, file: str | None) -> str | None:
    """What makes a graph outdated, in words, if the file that its function is from is this one."""
    try:
        manifest = read_manifest(path)
    except CacheError as error:
        # Of a damaged file nothing is known.
        is_other = path.is_file() and not path.is_symlink() and is_of_other_format(path.read_text(errors="replace"))
        return str(error.__cause__ or error) if is_other else None
    if _file_of(manifest) != file:
        return None
    made, now = manifest.fingerprint, store.fingerprint.parts
    compared = _OF_CODE | {_OF_CHOSEN} if made.parts.get(_CHOSEN) == now.get(_CHOSEN) else _OF_CODE
    if all(made.parts.get(name) == now.get(name) for name in compared):
        return None
    return made.difference(now)


def _file_of(manifest: Manifest) -> str | None:
    """The file of the module that a function is from; None where it is not from one."""
    modules = [each for each in manifest.sources if not each.function and _is_within(manifest.function, each.module)]
    return max(modules, key=lambda each: len(each.module)).file if modules else None


def _is_within(function: str, module: str) -> bool:
    return function.startswith(f"{module}.")
