"""What happened to every graph of the process; the report reads it."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airgraph.memory.locks import renew_after_fork

__all__ = ["CachedRecord", "GraphRecord", "Ledger", "ledger"]


@dataclass(slots=True)
class GraphRecord:
    """One row of the report. state: "captured", "skipped" (runs eagerly) or "dropped" (recaptured since).

    nbytes: of arena, input buffers and outputs. device_graph: while it lives. inputs: of each argument its name, role
    and bytes. tally: one number, how often it was replayed, where the engine counts it up.
    """

    name: str
    state: str
    reason: str
    key: str
    nodes: int = 0
    streams: int = 0
    threads: int = 1
    threads_reason: str = ""
    pool: int | None = None
    nbytes: int = 0
    arena_nbytes: int = 0
    copied_nbytes: int = 0
    capture_ms: float = 0.0
    source: str = ""
    operator: str = ""
    device_graph: weakref.ref[Any] | None = None
    inputs: tuple[tuple[str, str, int], ...] = ()
    tally: list[int] = field(default_factory=lambda: [0])

    @property
    def replays(self) -> int:
        """How often it was replayed."""
        return self.tally[0]


@dataclass(slots=True)
class CachedRecord:
    """One row of the report for a function whose graphs are kept in files.

    hits: calls that a graph at hand served. misses: the others; for them files were read, or the function was traced,
    or neither, for the reasons that `refusals` counts until no other call is tried. unwritten: for each reason why a
    traced graph is not in a file, how often.
    """

    name: str
    hits: int = 0
    misses: int = 0
    files_read: int = 0
    traces: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    unwritten: Counter[str] = field(default_factory=Counter)


class Ledger:
    """Counts and rows. Rows are kept until `clear`, callables weakly, so that they can be reset."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        renew_after_fork(self, "_lock")
        self.records: list[GraphRecord] = []
        self.callables: weakref.WeakSet[Any] = weakref.WeakSet()
        self.cached: weakref.WeakSet[Any] = weakref.WeakSet()
        self.pools: weakref.WeakSet[Any] = weakref.WeakSet()
        self.captures = 0
        self.recaptures = 0
        self.eager_calls = 0
        self.pass_changes: Counter[str] = Counter()
        self._names: Counter[str] = Counter()
        self._kept: list[Any] | None = None

    def next_name(self, function: str | None) -> str:
        """The name of one more graph of a function, such as `Model.forward #2`."""
        with self._lock:
            function = function or "graph"
            self._names[function] += 1
            return f"{function} #{self._names[function]}"

    def add(self, record: GraphRecord) -> None:
        with self._lock:
            self.records.append(record)

    def keep_functions(self) -> None:
        """Hold every function that is added from now on, with its captures, until the process ends.

        For who looks at them when the code that compiled them is over.
        """
        with self._lock:
            self._kept = self._kept or []

    def add_callable(self, graphed: Any) -> None:
        with self._lock:
            self.callables.add(graphed)
            if self._kept is not None:
                self._kept.append(graphed)

    def callables_alive(self) -> list[Any]:
        with self._lock:
            return list(self.callables)

    def add_cached(self, function: Any) -> None:
        with self._lock:
            self.cached.add(function)
            if self._kept is not None:
                self._kept.append(function)

    def cached_alive(self) -> list[Any]:
        with self._lock:
            return list(self.cached)

    def add_pool(self, pool: Any) -> None:
        with self._lock:
            self.pools.add(pool)

    def pools_alive(self) -> list[Any]:
        with self._lock:
            return sorted(self.pools, key=lambda pool: pool.id)

    def count(self, counter: str) -> None:
        with self._lock:
            setattr(self, counter, getattr(self, counter) + 1)

    def count_changes(self, changes: Mapping[str, int]) -> None:
        with self._lock:
            self.pass_changes.update(changes)

    def clear(self) -> None:
        with self._lock:
            self.records.clear()
            self.pass_changes.clear()
            self.captures = self.recaptures = self.eager_calls = 0


ledger = Ledger()
