"""How long products take on this machine, each way that they can be computed: measured once, kept between processes."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from airgraph import environment
from airgraph.memory.locks import renew_after_fork
from airgraph.runtime.cpu.processor import cpu_model

__all__ = ["FILE", "ProductTimes", "Times", "product_times"]

log = logging.getLogger(__name__)

FILE = "products.json"
# To be raised when kernels of ours change.
_FORMAT = 1
_LOCK_SECONDS = 1.0
# Of one machine; more would be a program whose shapes never end.
_MOST = 1024
# What takes longer was not measured here.
_MOST_NS = 1e15

# Nanoseconds by the way of computing.
Times = Mapping[str, float]


class ProductTimes:
    """What was measured, by a product's key. Thread-safe.

    The file is shared by all processes of a user. One that cannot be read counts as empty and is written anew; where it
    cannot be written, or there is none, what was measured is known to this process alone.
    """

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self._lock = threading.RLock()
        renew_after_fork(self, "_lock")
        self._known: dict[str, Times] | None = None

    def get(self, key: str) -> Times | None:
        with self._lock:
            if self._known is None:
                self._known = {} if self.file is None else _of_machine(_read(self.file))
            return self._known.get(key)

    def add(self, measured: Mapping[str, Times]) -> None:
        with self._lock:
            self._known = {**(self._known or {}), **measured}
        if self.file is not None:
            try:
                _write(self.file, measured)
            except (OSError, Timeout, NotImplementedError) as error:
                log.info("times of products are not kept in %s: %s", self.file, error)


def _write(file: Path, measured: Mapping[str, Times]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{file}.lock", timeout=_LOCK_SECONDS):
        machines = _read(file)
        # What is added moves to the end, so that the oldest go first.
        kept = {key: times for key, times in _of_machine(machines).items() if key not in measured}
        kept.update(measured)
        machines[_machine()] = dict(list(kept.items())[-_MOST:])
        text = json.dumps({"format": _FORMAT, "machines": machines})
        handle, draft = tempfile.mkstemp(dir=file.parent, prefix=FILE)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
            os.replace(draft, file)
        except BaseException:
            os.unlink(draft)
            raise


_files: dict[Path | None, ProductTimes] = {}


def product_times() -> ProductTimes:
    """Those beside the compile cache."""
    file: Path | None
    try:
        file = environment.cache_folder() / FILE
    except RuntimeError:
        # A user without a home.
        file = None
    return _files.setdefault(file, ProductTimes(file))


def _machine() -> str:
    """Whatever else times depend on."""
    return f"{cpu_model()}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict) or found.get("format") != _FORMAT or not isinstance(found.get("machines"), dict):
        return {}
    return found["machines"]


def _of_machine(machines: Mapping[str, Any]) -> dict[str, Times]:
    found = machines.get(_machine())
    return {key: times for key, times in found.items() if _are_times(times)} if isinstance(found, dict) else {}


def _are_times(found: object) -> bool:
    return isinstance(found, dict) and all(isinstance(ns, float | int) and 0 < ns < _MOST_NS for ns in found.values())
