"""The explain report: every graph, why it was captured, skipped or recaptured, and what it costs."""

from __future__ import annotations

import gc
import io
from dataclasses import dataclass
from typing import Any

from airgraph.capture.ledger import ledger

__all__ = ["Report", "explain", "reset"]

_ROW = (
    "name",
    "state",
    "reason",
    "key",
    "nodes",
    "streams",
    "pool",
    "arena_nbytes",
    "copied_nbytes",
    "capture_ms",
    "replays",
)


@dataclass(frozen=True, slots=True)
class Report:
    """A snapshot. `str()` is a table, `to_dict()` plain data with the keys that API.md lists."""

    graphs: tuple[dict[str, Any], ...]
    pools: tuple[dict[str, Any], ...]
    counters: dict[str, int]
    passes: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        return {
            "graphs": [dict(row) for row in self.graphs],
            "pools": [dict(row) for row in self.pools],
            "counters": dict(self.counters),
            "passes": dict(self.passes),
        }

    def __str__(self) -> str:
        from rich.console import Console
        from rich.table import Table

        graphs = Table(title="airgraph: graphs")
        for column in _ROW:
            graphs.add_column(column, overflow="fold")
        for row in self.graphs:
            graphs.add_row(*(f"{v:.1f}" if isinstance(v, float) else str(v) for v in (row[c] for c in _ROW)))
        pools = Table(title="pools")
        for column in ("id", "device", "nbytes", "graphs"):
            pools.add_column(column)
        for row in self.pools:
            pools.add_row(*map(str, row.values()))
        out = io.StringIO()
        console = Console(file=out, width=140)
        console.print(graphs)
        console.print(pools)
        console.print("  ".join(f"{name}: {count}" for name, count in self.counters.items()))
        return out.getvalue()


def explain() -> Report:
    """What has been captured, skipped and recaptured in this process so far."""
    records = list(ledger.records)
    graphs = tuple({name: getattr(record, name) for name in _ROW} for record in records)
    pools = tuple(
        {"id": pool.id, "device": str(pool.device), "nbytes": pool.nbytes, "graphs": pool.graphs}
        for pool in sorted(ledger.pools, key=lambda pool: pool.id)
        if pool.graphs
    )
    counters = {
        "captures": ledger.captures,
        "recaptures": ledger.recaptures,
        "replays": sum(record.replays for record in records),
        "eager_calls": ledger.eager_calls,
    }
    return Report(graphs, pools, counters, dict(ledger.pass_changes))


def reset() -> None:
    """Forget every capture and every count, and free the memory of all pools. Compiled functions capture anew."""
    ledger.clear()
    for graphed in list(ledger.callables):
        graphed.reset()
    gc.collect()
    for pool in list(ledger.pools):
        pool.give_back()
