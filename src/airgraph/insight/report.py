"""The explain report: every graph, why it was captured, skipped or recaptured, and what it costs."""

from __future__ import annotations

import gc
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airgraph import arguments
from airgraph.capture.ledger import GraphRecord, ledger
from airgraph.errors import AirgraphError, OptionError
from airgraph.insight.picture import GraphMemory, save_memory_page
from airgraph.insight.streams_picture import GraphTimeline, save_streams_page, save_trace
from airgraph.memory.pool import MemoryPool
from airgraph.program.source_lines import of_trace
from airgraph.torch_internals import dynamo
from airgraph.torch_internals.dynamo_texts import reason_and_trace
from airgraph.user_warning import warn_user

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
    "nbytes",
    "copied_nbytes",
    "capture_ms",
    "replays",
)
# Not in the table: below it, where there is one, and in its pool's row.
_THREADS_REASON = "threads_reason"
_BESIDE_ROW = (_THREADS_REASON, "arena_nbytes")

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

_PRODUCT_ROW = ("graph", "key", "product", "calls", "way", "measured_us")

_CACHED_ROW = ("name", "hits", "misses", "files_read", "traces", "refusals", "unwritten")
# Of these, counts of reasons.
_REASONS = ("refusals", "unwritten")


@dataclass(frozen=True, slots=True)
class Report:
    """A snapshot. `str()` is a table, `to_dict()` plain data with the keys that docs/api.md lists.

    Of a graph and of a pool: nbytes is the sum of arena, inputs and outputs; arena: intermediates alone; copied: the
    most that one call copies, of inputs and within the graph. saved: what a pool's graphs would take more if each had
    memory of its own. packed: bytes of copies of weights beside the pools. graph_breaks: of all that torch.compile has
    compiled, since torch._dynamo.reset(); what is at a break runs eagerly.
    """

    graphs: tuple[dict[str, Any], ...]
    pools: tuple[dict[str, Any], ...]
    counters: dict[str, int]
    passes: dict[str, int]
    cached: tuple[dict[str, Any], ...] = ()
    products: tuple[dict[str, Any], ...] = ()
    packed_nbytes: int = 0
    graph_breaks: tuple[dict[str, Any], ...] = ()
    timelines: tuple[GraphTimeline, ...] | None = None
    _records: tuple[GraphRecord, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data of its own, which JSON can hold."""
        return {
            "graphs": [dict(row) for row in self.graphs],
            "pools": [dict(row) for row in self.pools],
            "counters": dict(self.counters),
            "passes": dict(self.passes),
            "cached": [{**row, **{name: dict(row[name]) for name in _REASONS}} for row in self.cached],
            "products": [{**row, "measured_us": dict(row["measured_us"])} for row in self.products],
            "packed_nbytes": self.packed_nbytes,
            "graph_breaks": [dict(row) for row in self.graph_breaks],
        }

    def save(self, path: str | Path) -> Path:
        """Draw what the name of the file says.

        `….json`, such as `trace.json`: when each call ran, for Perfetto and Chrome. `streams.html`: the same as a page.
        Both need a report of `explain(profile=True)`. Other names: the memory of all pools as a page: arenas by step,
        sharing, input roles. Graphs that were dropped since the snapshot have no arena in it.
        Raises OptionError for what is no path and where there is no profile, an ImportError that says what to install
        where plotly is missing, and OSError if the file cannot be written.
        """
        path = arguments.path("path", path)
        if path.suffix == ".json" or path.name == "streams.html":
            if self.timelines is None:
                raise OptionError(
                    f"{path.name}: this report has no profile. Take one by airgraph.explain(profile=True)."
                )
            return (save_trace if path.suffix == ".json" else save_streams_page)(path, self.timelines)
        graphs = []
        for record, device_graph in _captured(self._records):
            if record.pool is not None:
                slots = tuple(device_graph.occupancy())
                graphs.append(GraphMemory(record.name, record.key, record.pool, slots, record.inputs))
        return save_memory_page(path, self.pools, graphs)

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
            shown = {**row, **{name: escape(_reasons(row[name])) for name in _REASONS}}
            cached.add_row(*map(str, shown.values()))
        products = Table(title="products of many rows: what computes them")
        for column in _PRODUCT_ROW:
            products.add_column(column, overflow="fold")
        for row in self.products:
            measured = ", ".join(f"{way} {us:.1f}" for way, us in row["measured_us"].items())
            products.add_row(*(str(row[column]) for column in _PRODUCT_ROW[:-1]), measured or "not measured")
        out = io.StringIO()
        console = Console(file=out, width=140)
        console.print(graphs)
        for row in self.graphs:
            if row[_THREADS_REASON]:
                of = f"{row['name']} {row['key']}: {row['streams']} streams"
                console.print(escape(f"{of} one after another: {row[_THREADS_REASON]}"))
        for row in self.graph_breaks:
            console.print(escape(f"graph break at {row['source']}, {row['count']} x: {row['reason']}"))
        console.print(pools)
        console.print(passes)
        if self.products:
            console.print(products)
        if self.cached:
            console.print(cached)
        numbers = {**self.counters, "packed_nbytes": self.packed_nbytes}
        console.print("  ".join(f"{name}: {count}" for name, count in numbers.items()))
        return out.getvalue()


def explain(profile: bool = False) -> Report:
    """What has been captured, skipped and recaptured in this process so far.

    profile: with when each call of each graph runs. For that, graphs are run on memory of their own: no argument and no
    result changes, but operators of your own are called, and what a graph takes is taken once more. Collectives are
    called too: all ranks must ask.
    """
    records = list(ledger.records)
    for record in records:
        if record.state == "captured" and record.device_graph is not None and record.device_graph() is None:
            # Its compiled function is gone.
            record.state = "dropped"
    graphs = tuple({name: getattr(record, name) for name in (*_ROW, *_BESIDE_ROW)} for record in records)
    pools = tuple(_pool_row(pool, records) for pool in ledger.pools_alive() if pool.graphs)
    counters = {
        "captures": ledger.captures,
        "recaptures": ledger.recaptures,
        "replays": sum(record.replays for record in records),
        "eager_calls": ledger.eager_calls,
    }
    counts = sorted((function.counts() for function in ledger.cached_alive()), key=lambda each: each.name)
    cached = tuple({name: getattr(each, name) for name in _CACHED_ROW} for each in counts if each.hits or each.misses)
    timelines = tuple(_timelines(records)) if profile else None
    packed: dict[int, int] = {}
    for _, device_graph in _captured(records):
        packed.update(device_graph.packed())
    return Report(
        graphs,
        pools,
        counters,
        dict(ledger.pass_changes),
        cached,
        tuple(_product_rows(records)),
        sum(packed.values()),
        tuple(_graph_breaks()),
        timelines,
        tuple(records),
    )


def _product_rows(records: Iterable[GraphRecord]) -> Iterator[dict[str, Any]]:
    for record, device_graph in _captured(records):
        for choice, calls in device_graph.products.items():
            measured = {way: ns / 1e3 for way, ns in choice.times.items()}
            values = (record.name, record.key, choice.product, calls, choice.way, measured)
            yield dict(zip(_PRODUCT_ROW, values, strict=True))


def _graph_breaks() -> Iterator[dict[str, Any]]:
    """A row for each line and reason."""
    rows = Counter((of_trace(trace), reason_and_trace(text)[0].rstrip(".")) for text, trace in dynamo.graph_breaks())
    for (source, reason), count in rows.items():
        yield {"source": source, "reason": reason, "count": count}


def _reasons(counts: Mapping[str, int]) -> str:
    return "\n".join(f"{count} x {reason}" for reason, count in counts.items())


def _captured(records: Iterable[GraphRecord]) -> Iterator[tuple[GraphRecord, Any]]:
    """The rows of graphs that are there, with their graphs."""
    for record in records:
        device_graph = record.device_graph() if record.device_graph is not None else None
        if record.state == "captured" and device_graph is not None:
            yield record, device_graph


def _timelines(records: Iterable[GraphRecord]) -> Iterator[GraphTimeline]:
    for record, device_graph in _captured(records):
        try:
            yield GraphTimeline(record.name, record.key, tuple(device_graph.profile()))
        except AirgraphError as error:
            warn_user(f"{record.name} {record.key} has no profile: {error}")


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
    """Forget every capture and every count, and free the memory of all pools. Compiled functions capture anew.

    Outputs that are held, and graphs by hand, stay. Raises ReplayError from within a call of a graph.
    """
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
