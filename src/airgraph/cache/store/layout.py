"""How the folders and files of cached graphs are named, and what is said of them where they are."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from airgraph.cache.format.fingerprint import Fingerprint, digest_of
from airgraph.cache.store.ranks import Ranks

__all__ = ["AIRGRAPH", "TORCHAIR", "Function", "Layout", "graph_files"]

# Of a folder; file systems take 255 bytes.
_LONGEST_NAME = 160


@dataclass(frozen=True, slots=True)
class Function:
    """A function as its graphs are filed. name: `module.Class.method`. of: the class, or the function's own name.
    form: of what its object holds, see `form_of_owner`."""

    name: str
    signature: str
    of: str
    method: str
    dynamic: bool | None
    fingerprint: Fingerprint
    form: str
    ranks: Ranks


class Layout:
    """airgraph's own: `module.Class.method/fingerprint/[rank/][form/]graph_0.airgraph`."""

    # Folders from the root on that hold all graphs of a function in one state of its code and settings.
    depth = 2
    pattern = "graph_*.airgraph"

    def folders(self, function: Function) -> tuple[str, ...]:
        """From the root on; empty ones are left out."""
        return as_folder(function.name), function.fingerprint.digest, function.ranks.as_folder(), function.form

    def states(self, function: Function) -> str:
        """What the last folder of a state is called, as a pattern."""
        return "*"

    def within(self, function: Function) -> str:
        """Where in the folder of a state the function's graphs are, as a pattern."""
        return f"**/{self.pattern}"

    def file(self, number: int) -> str:
        return f"graph_{number}.airgraph"

    def saved(self, function: Function, path: Path) -> None:
        """Say that a graph was written."""

    def loaded(self, function: Function, path: Path) -> None:
        """Say that a graph was read."""


class TorchAirLayout(Layout):
    """TorchAir's: `Class_dynamic_aclgraphcache_digest/[world2global_rank0/]method/compiled_module`, the further graphs
    of a method being `compiled_module_1` and so on. The functions of an object share the first folder.

    What is written and read is said at INFO in TorchAir's words, by its logger.
    """

    depth = 1
    pattern = "compiled_module*"
    _log = logging.getLogger("torchair")

    def folders(self, function: Function) -> tuple[str, ...]:
        parts: Mapping[str, str] = function.fingerprint.parts
        # The function itself is compared when a file is read.
        of_function = ("the function's sources", "the function's instructions", "what the function holds")
        of_object = [f"{name}: {text}" for name, text in sorted(parts.items()) if name not in of_function]
        digest = digest_of("\0".join([*of_object, function.form, "" if parts["class"] else function.name]))
        state = f"{self._state(function)}{digest}"
        return state, function.ranks.as_folder_of_torchair(), as_folder(function.method)

    def states(self, function: Function) -> str:
        return f"{self._state(function)}*"

    def within(self, function: Function) -> str:
        return f"**/{as_folder(function.method)}/{self.pattern}"

    def _state(self, function: Function) -> str:
        sizes = "static" if function.dynamic is False else "dynamic"
        return f"{as_folder(function.of)}_{sizes}_aclgraphcache_"

    def file(self, number: int) -> str:
        return f"compiled_module_{number}" if number else "compiled_module"

    def saved(self, function: Function, path: Path) -> None:
        self._log.info("Cache %s saved to %s", self._described(function, path), path)

    def loaded(self, function: Function, path: Path) -> None:
        self._log.info("Cache %s loaded from %s", self._described(function, path), path)

    def _described(self, function: Function, path: Path) -> str:
        written = datetime.fromtimestamp(path.stat().st_mtime, tz=timezone.utc)
        version = function.fingerprint.parts["airgraph"]
        return f"ModelCacheMeta(name={function.signature!r}, date='{written}', version={version!r}, fx=None)"


AIRGRAPH = Layout()
TORCHAIR = TorchAirLayout()


def graph_files(root: Path) -> list[Path]:
    """All graphs below a folder, whatever layout they have."""
    return sorted(path for layout in (AIRGRAPH, TORCHAIR) for path in root.rglob(layout.pattern))


def as_folder(function: str) -> str:
    """A name as a folder's. A long one is cut, and told apart by a digest of all of it."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", function)
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:_LONGEST_NAME]}-{hashlib.sha256(function.encode()).hexdigest()[:16]}"
