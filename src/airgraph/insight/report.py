"""The explain report: every graph, why it was captured, skipped or recaptured, and what it costs."""

from __future__ import annotations

import gc
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgraph.capture.ledger import GraphRecord, ledger
from airgraph.insight.picture import GraphMemory, save_page
from airgraph.memory.pool import MemoryPool

__all__ = ["Report", "explain", "reset"]

_ROW = (
    "name",
    "state",
    "reason",
    "key",
    "nodes",
    "streams",
    "threads",
    "pool",
    "arena_nbytes",
    "copied_nbytes",
    "capture_ms",
    "replays",
)


_POOL_ROW = (
    "id",
    "device",
    "nbytes",
    "graphs",
    "arena_nbytes",
    "inputs_nbytes",
    "outputs_nbytes",
    "saved_nbytes",
    "copied_nbytes",
)

_CACHED_ROW = ("name", "hits", "misses", "files_read", "traces", "refusals")


@dataclass(frozen=True, slots=True)
class Report:
    """A snapshot. `str()` is a table, `to_dict()` plain data with the keys that docs/api.md lists.

    Of a pool: nbytes is the sum of arena, inputs and outputs; saved: what its graphs would take more if each had memory
    of its own; copied: the most that one call copies, of inputs and within the graph.
    """

    graphs: tuple[dict[str, Any], ...]
    pools: tuple[dict[str, Any], ...]
    counters: dict[str, int]
    passes: dict[str, int]
    cached: tuple[dict[str, Any], ...] = ()
    _records: tuple[GraphRecord, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "graphs": [dict(row) for row in self.graphs],
            "pools": [dict(row) for row in self.pools],
            "counters": dict(self.counters),
            "passes": dict(self.passes),
            "cached": [{**row, "refusals": dict(row["refusals"])} for row in self.cached],
        }

    def save(self, path: str | Path) -> Path:
        """Draw the memory of all pools into one self-contained page: arenas by step, sharing, input roles.

        Graphs that were dropped since the snapshot have no arena in it. Raises an ImportError that says what to install
        where plotly is missing, and OSError if the page cannot be written.
        """
        graphs = []
        for record in self._records:
            device_graph = record.device_graph() if record.device_graph is not None else None
            if record.state == "captured" and device_graph is not None and record.pool is not None:
                slots = tuple(device_graph.occupancy())
                graphs.append(GraphMemory(record.name, record.key, record.pool, slots, record.inputs))
        return save_page(path, self.pools, graphs)

    def __str__(self) -> str:
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        graphs = Table(title="airgraph: graphs")
        for column in _ROW:
            graphs.add_column(column, overflow="fold")
        for row in self.graphs:
            graphs.add_row(*(f"{v:.1f}" if isinstance(v, float) else str(v) for v in (row[c] for c in _ROW)))
        pools = Table(title="pools")
        for column in _POOL_ROW:
            pools.add_column(column)
        for row in self.pools:
            pools.add_row(*map(str, row.values()))
        passes = Table(title="passes")
        for column in ("pass", "changes"):
            passes.add_column(column)
        for name, changes in self.passes.items():
            passes.add_row(name, str(changes))
        cached = Table(title="functions with a compile cache")
        for column in _CACHED_ROW:
            cached.add_column(column, overflow="fold")
        for row in self.cached:
            reasons = "\n".join(f"{count} x {reason}" for reason, count in row["refusals"].items())
            cached.add_row(*(str(row[column]) for column in _CACHED_ROW[:-1]), escape(reasons))
        out = io.StringIO()
        console = Console(file=out, width=140)
        console.print(graphs)
        console.print(pools)
        console.print(passes)
        if self.cached:
            console.print(cached)
        console.print("  ".join(f"{name}: {count}" for name, count in self.counters.items()))
        return out.getvalue()


def explain() -> Report:
    """What has been captured, skipped and recaptured in this process so far."""
    records = list(ledger.records)
    for record in records:
        if record.state == "captured" and record.device_graph is not None and record.device_graph() is None:
            # Its compiled function is gone.
            record.state = "dropped"
    graphs = tuple({name: getattr(record, name) for name in _ROW} for record in records)
    pools = tuple(_pool_row(pool, records) for pool in ledger.pools_alive() if pool.graphs)
    counters = {
        "captures": ledger.captures,
        "recaptures": ledger.recaptures,
        "replays": sum(record.replays for record in records),
        "eager_calls": ledger.eager_calls,
    }
    counts = sorted((function.counts() for function in ledger.cached_alive()), key=lambda each: each.name)
    cached = tuple({name: getattr(each, name) for name in _CACHED_ROW} for each in counts if each.hits or each.misses)
    return Report(graphs, pools, counters, dict(ledger.pass_changes), cached, tuple(records))


def _pool_row(pool: MemoryPool, records: list[GraphRecord]) -> dict[str, Any]:
    held = pool.footprint
    copied = [r.copied_nbytes for r in records if r.pool == pool.id and r.state == "captured"]
    values = (
        pool.id,
        str(pool.device),
        held.nbytes,
        pool.graphs,
        held.arena_nbytes,
        sum(held.inputs_nbytes),
        held.outputs_nbytes,
        max(0, pool.unshared_nbytes - held.nbytes),
        max(copied, default=0),
    )
    return dict(zip(_POOL_ROW, values, strict=True))


def reset() -> None:
    """Forget every capture and every count, and free the memory of all pools. Compiled functions capture anew."""
    ledger.clear()
    for function in ledger.cached_alive():
        function.reset_counts()
    for graphed in ledger.callables_alive():
        graphed.reset()
    if ledger.pools_alive():
        # Some may belong to graphs that only a cycle keeps.
        gc.collect()
    for pool in ledger.pools_alive():
        pool.give_back()
