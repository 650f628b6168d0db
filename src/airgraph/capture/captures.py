"""The captures of one FX graph: which there are, by key and by use, and how one more comes to be."""

from __future__ import annotations

import logging
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from airgraph.capture.argument_form import ArgumentForm
from airgraph.capture.key import GraphKey
from airgraph.capture.ledger import GraphRecord, ledger
from airgraph.errors import CannotCapture, FailedOperator, InternalError, OptionError, UnsupportedGraph
from airgraph.memory.pool import MemoryPool
from airgraph.options import Options
from airgraph.program.inputs import InputPolicy, InputRole
from airgraph.program.program import CaptureProgram
from airgraph.runtime.protocol import DeviceGraph, DeviceRuntime, FailedCall
from airgraph.runtime.recording.inputs import CaptureInput, decide_inputs
from airgraph.torch_internals.dispatcher import without_autocast
from airgraph.torch_internals.modes import without_modes

__all__ = ["NEW_KEY", "CapturedGraph", "Captures", "Made"]

log = logging.getLogger(__name__)

# Why a first capture is made; each other reason is that of a recapture.
NEW_KEY = "new key"
# How many values of something that changes stand in a message.
_MOST_NAMED = 8
# So many keys are known again whose captures were dropped.
_MOST_REMEMBERED = 1000


@dataclass(frozen=True, slots=True, eq=False)
class CapturedGraph:
    """One capture of a program; `record` is its row in the report. forms: of the arguments it was captured for."""

    key: GraphKey
    device_graph: DeviceGraph
    record: GraphRecord
    pool: MemoryPool
    forms: tuple[ArgumentForm | None, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """graph: None where this call is not replayed. outputs: of this call, where it was run to capture it.

    has_run: whether it was run to no such end, on what may be written.
    """

    graph: CapturedGraph | None
    outputs: list[Any] | None
    has_run: bool


class Captures:
    """`capture_limit` of them are kept, those that were used last. Changed under the pool's replay lock only.

    Where a memory pool is for all of them, they are given it; else each opens one of its own.
    """

    def __init__(
        self,
        program: CaptureProgram,
        runtime: DeviceRuntime,
        options: Options,
        pool: MemoryPool | None,
        *,
        distrusted: bool,
        warn_once: Callable[[str, str], None],
    ) -> None:
        """distrusted: whether the program comes from a file; where an operator of it fails, CannotCapture is raised."""
        self._program = program
        self._runtime = runtime
        self._options = options
        self._pool = pool
        self._distrusted = distrusted
        self._warn_once = warn_once
        self._scalars = [plan.index for plan in program.inputs if plan.role is InputRole.SCALAR]
        # Of each key, the one that served last at the front.
        self._of_key: dict[GraphKey, list[CapturedGraph]] = {}
        # All of them, the one that served last at the end.
        self._by_use: OrderedDict[CapturedGraph, None] = OrderedDict()
        # Keys that `capture_limit` has left without a capture, the latest at the end.
        self._crowded_out: OrderedDict[GraphKey, None] = OrderedDict()

    def key(self, args: Sequence[Any]) -> GraphKey:
        return GraphKey.of([args[index] for index in self._scalars])

    def numbers(self, args: Sequence[Any]) -> list[tuple[int, Any]]:
        """Index and value of each number of a key."""
        return [(index, args[index]) for index in self._scalars]

    def of(self, key: GraphKey) -> list[CapturedGraph]:
        """A copy: captures may be dropped while one goes through it."""
        return list(self._of_key.get(key, ()))

    def all(self) -> list[CapturedGraph]:
        """The one that served last at the end."""
        return list(self._by_use)

    def served(self, graph: CapturedGraph) -> None:
        """It served last, and is asked first."""
        kept = self._of_key[graph.key]
        if kept[0] is not graph:
            # As a whole: an exception of a signal handler may fall anywhere.
            self._of_key[graph.key] = [graph, *(each for each in kept if each is not graph)]
        self._by_use[graph] = None
        self._by_use.move_to_end(graph)

    def drop(self, graph: CapturedGraph) -> None:
        self._by_use.pop(graph, None)
        kept = [each for each in self.of(graph.key) if each is not graph]
        if kept:
            self._of_key[graph.key] = kept
        else:
            self._of_key.pop(graph.key, None)
        graph.device_graph.close()
        graph.record.state = "dropped"

    def forget_all(self) -> None:
        """As if there had never been any; the report keeps their rows."""
        for graph in self._by_use:
            graph.device_graph.close()
        self._by_use.clear()
        self._of_key.clear()
        self._crowded_out.clear()

    def capture(self, key: GraphKey, args: list[Any], reason: str, *, runs: bool) -> CapturedGraph:
        """One more for these arguments. runs: whether it may run the call, see `DeviceRuntime.record`.

        Raises FailedCall as that does, UnsupportedGraph where it cannot be captured, and OptionError for a closed pool.
        """
        pool = self._pool if self._pool is not None else self._runtime.open_pool(self._program.device)
        if pool.closed:
            raise OptionError(f"{self._program.name} is to be captured for a new key, but {pool!r} was closed.")
        self._make_room(reason)
        if reason == NEW_KEY and key in self._crowded_out:
            reason = f"key {key} was dropped by capture_limit={self._options.capture_limit}"
        start = time.perf_counter()
        # Of weights, which may be hundreds, it is not said how they changed.
        forms = tuple(
            None if plan.role is InputRole.STATIC else ArgumentForm.of(args[plan.index])
            for plan in self._program.inputs
        )
        try:
            # The program has its casts already, and was traced under the modes that it is for.
            with without_autocast(), without_modes():
                follows_moves = self._runtime.capabilities.follows_moves
                inputs = decide_inputs(self._program, args, self._options, follows_moves=follows_moves)
                device_graph = self._runtime.record(self._program, inputs, pool, self._options, args if runs else None)
        except UnsupportedGraph as obstacle:
            if self._distrusted and isinstance(obstacle, FailedOperator):
                raise CannotCapture(str(obstacle)) from obstacle
            raise
        except (OptionError, InternalError, FailedCall):
            # No fault of the program.
            raise
        except Exception as error:
            if self._distrusted:
                raise CannotCapture(f"{type(error).__name__}: {error}") from error
            raise
        elapsed_ms = (time.perf_counter() - start) * 1e3
        ledger.count("captures")
        if reason != NEW_KEY:
            ledger.count("recaptures")
        record = GraphRecord(
            name=self._program.name,
            state="captured",
            reason=reason,
            key=str(key),
            nodes=device_graph.nodes,
            streams=device_graph.streams,
            threads=device_graph.threads,
            threads_reason=device_graph.threads_reason,
            pool=pool.id,
            nbytes=device_graph.footprint.nbytes,
            arena_nbytes=device_graph.footprint.arena_nbytes,
            copied_nbytes=_copied_nbytes(inputs) + device_graph.copied_nbytes,
            capture_ms=elapsed_ms,
            device_graph=weakref.ref(device_graph),
            inputs=tuple((each.plan.source, each.plan.role.value, _nbytes(each.arg)) for each in inputs),
        )
        ledger.add(record)
        ledger.add_pool(pool)
        if self._program.dump is not None:
            self._program.dump.tape(str(key), device_graph.describe())
        graph = CapturedGraph(key, device_graph, record, pool, forms)
        self._of_key.setdefault(key, []).insert(0, graph)
        self._crowded_out.pop(key, None)
        log.info(
            "captured %s key %s: %d nodes, %d bytes, %.1f ms",
            record.name,
            key,
            record.nodes,
            record.nbytes,
            elapsed_ms,
        )
        return graph

    def _make_room(self, reason: str) -> None:
        """Drop what was used least recently, so that one more capture may be kept."""
        limit = self._options.capture_limit
        while len(self._by_use) >= limit:
            what_changes = self._what_changes(reason)
            oldest = next(iter(self._by_use))
            self.drop(oldest)
            if oldest.key not in self._of_key:
                self._crowded_out[oldest.key] = None
                if len(self._crowded_out) > _MOST_REMEMBERED:
                    self._crowded_out.popitem(last=False)
            self._warn_once(
                "limit",
                f"{self._program.name} keeps capture_limit={limit} captures and drops the one used least "
                f"recently for each new one, which costs a capture whenever it comes again. What keeps changing: "
                f"{what_changes}. Raise capture_limit, or pad to fewer shapes.",
            )

    def _what_changes(self, reason: str) -> str:
        """What tells the captures that are kept from one another, for a person to read."""
        changing = []
        for position, index in enumerate(self._scalars):
            values = {graph.key.scalars[position].value for graph in self._by_use}
            if len(values) > 1:
                some = ", ".join(map(str, sorted(values)[:_MOST_NAMED]))
                changing.append(f"{self._program.inputs[index].source} (such as {some})")
        others = [graph for graph in self._by_use if graph.record.reason != NEW_KEY]
        if len(others) * 2 > len(self._by_use) or not changing:
            changing.append(reason)
        return "; ".join(changing)


def _copied_nbytes(inputs: Sequence[CaptureInput]) -> int:
    """The most that a call copies of its inputs."""
    return sum(_nbytes(each.arg) for each in inputs if each.policy in (InputPolicy.COPY, InputPolicy.KEEP))


def _nbytes(arg: Any) -> int:
    return arg.nbytes if isinstance(arg, torch.Tensor) else 0
