"""Removes graphs that an older state of the program, of airgraph or of PyTorch has left behind."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from airgraph.cache.format.manifest import Manifest
from airgraph.cache.format.signed import is_of_other_format
from airgraph.cache.store.folder import Store, read_manifest, remove_empty
from airgraph.errors import CacheError

__all__ = ["remove_outdated"]

log = logging.getLogger(__name__)

# Of states of other code: another environment may use the same folder.
_KEPT = 2
# Of all others: functions of one name in other programs, or that hold other values.
_MOST_STATES = 64
# Parts that no option of a program decides: with another one of these, graphs are of another time or place.
_OF_CODE = {"format", "airgraph", "torch", "torch_npu", "python", "passes", "the function's sources"}
# What a program chooses, and the code of that which it chose.
_CHOSEN, _OF_CHOSEN = "the program's passes", "their sources"


def remove_outdated(store: Store, written: Manifest) -> None:
    """Remove the graphs of a function that were made under other code, but for those of the newest two fingerprints.

    Graphs under other options are in use by whoever has these, and stay; so do those of other programs, whose functions
    may have the same name: each script is `__main__`. Those of other functions of this process stay, too: a file may
    have several of one name, such as lambdas. written: the graph that was written just now.
    """
    file = _file_of(written)
    states = store.newest_under_other_fingerprints()
    outdated = [path for path in states if not store.is_in_use(path) and _difference(path, store, file) is not None]
    for path in outdated[_KEPT:]:
        # Others in the folder may be of another program.
        _remove(store, path, lambda each: _difference(each, store, file))
    for path in [path for path in states if path not in outdated][_MOST_STATES:]:
        _remove(store, path, lambda each: f"one of more than {_MOST_STATES} states")


def _remove(store: Store, newest: Path, why: Callable[[Path], str | None]) -> None:
    """Those graphs of the state of this one for which there is a reason."""
    # Another process may do the same, or may be writing there.
    with suppress(OSError):
        for path in list(store.of_state(newest).glob(store.layout.within(store.function))):
            reason = why(path)
            if reason is not None:
                log.info("%s is removed: made under %s", path, reason)
                path.unlink()
                remove_empty(path.parent, store.root)


def _difference(path: Path, store: Store, file: str | None) -> str | None:
    """What makes a graph outdated, in words, if the file that its function is from is this one."""
    try:
        manifest = read_manifest(path)
    except OSError:
        return None
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
