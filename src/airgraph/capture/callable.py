"""The callable that stands for one FX graph: captures once a key, replays from then on."""

from __future__ import annotations

import logging
import threading
import time
import warnings
import weakref
from dataclasses import dataclass
from operator import is_
from typing import Any

import torch

from airgraph.capture.key import GraphKey
from airgraph.capture.ledger import GraphRecord, ledger
from airgraph.capture.pools import pool_for
from airgraph.capture.verification import Verification
from airgraph.capture.warmup import CannotGoOn, warming_threads
from airgraph.errors import CacheError, InputMoved, OptionError, ReplayError, UnsupportedGraph
from airgraph.memory.pool import MemoryPool
from airgraph.memory.turn import Turn
from airgraph.options import Options
from airgraph.program.inputs import InputRole
from airgraph.program.program import CaptureProgram
from airgraph.program.support import check_capturable
from airgraph.runtime.base import DeviceGraph, DeviceRuntime, InputProblem

__all__ = ["CapturedGraph", "GraphedCallable", "NotAdmitted"]

log = logging.getLogger(__name__)


class NotAdmitted(CacheError):
    """A program is not right for the arguments of a call; nothing was executed."""


@dataclass(frozen=True, slots=True)
class CapturedGraph:
    """One capture of a program; `record` is its row in the report."""

    key: GraphKey
    device_graph: DeviceGraph
    record: GraphRecord
    pool: MemoryPool


class GraphedCallable:
    """Calls a program by replaying a capture of it.

    1. The key of a call is its numbers; a call with a new key captures, which executes nothing.
    2. Every call then copies its user inputs and replays exactly once.
    3. An input used in place that has moved follows `on_input_move`.
    4. What cannot be captured runs eagerly, with one warning.

    Takes a list of arguments and empties it, as torch's compilers expect (`_boxed_call`). Calls of all graphs of a pool
    are serialised, from whatever thread. It does not keep its inputs alive.
    """

    _boxed_call = True

    def __init__(self, program: CaptureProgram, runtime: DeviceRuntime, options: Options) -> None:
        self._program = program
        self._runtime = runtime
        self._options = options
        self._pool = pool_for(program, runtime, options)
        # With a pool for each capture, no other callable shares any of them.
        self._turn = self._pool.turn if self._pool is not None else Turn()
        self._scalars = [plan.index for plan in program.inputs if plan.role is InputRole.SCALAR]
        self._graphs: dict[GraphKey, CapturedGraph] = {}
        # The capture that served the last call, for the usual one to find at once.
        self._single: CapturedGraph | None = None
        self._numbers: list[Any] = []
        self._captures = 0
        self._eager_keys: set[GraphKey] = set()
        self._always_eager: str | None = None
        self._skip_record: GraphRecord | None = None
        self._skip_reported = False
        self._limit_reached = False
        self._warned_held = False
        self._checks_held = options.live_outputs in ("warn", "error")
        # Whether what a replay makes is handed out as it is, with nothing to look at before.
        self._hands_out = not self._checks_held and options.clone_output is False and not options.verify_every
        self._verification = Verification(program, runtime, options)
        self._verified_after = 0
        _check_clone_output(options, len(program.gm.graph.output_node().args[0]))  # type: ignore[arg-type]
        ledger.callables.add(self)
        if options.force_eager:
            self._run_eagerly_from_now("force_eager is set", warn=False)
            return
        try:
            check_capturable(program.gm, program.device)
        except UnsupportedGraph as obstacle:
            self._run_eagerly_from_now(str(obstacle), obstacle=obstacle)

    def __call__(self, args: list[Any]) -> list[Any]:
        me = threading.get_ident()
        turn = self._turn
        if turn.owner == me:
            raise turn.refusal(self._program.name)
        if not turn.lock.acquire(blocking=False):
            turn.wait(me, self._program.name)
        turn.owner = me
        try:
            graph = self._single
            if graph is not None and self._scalars and not self._has_same_numbers(args):
                graph = None
            if graph is not None and self._hands_out and not warming_threads:
                # The usual call, without a detour.
                outputs = graph.device_graph.run(args)
                if outputs.__class__ is list:
                    graph.record.replays += 1
                    return outputs
            del graph
            return self._call(args)
        finally:
            turn.owner = None
            turn.lock.release()
            args.clear()

    def call(self, *args: Any) -> list[Any]:
        """The same with the arguments one by one."""
        return self(list(args))

    def reset(self) -> None:
        """Forget all captures; the next call captures anew. Raises ReplayError from within a call of this graph."""
        with self._turn.taken(f"reset of {self._program.name}"):
            for graph in self._graphs.values():
                graph.device_graph.close()
            self._graphs.clear()
            self._single = None
            self._captures = 0
            self._eager_keys.clear()
            self._warned_held = False
            self._skip_reported = False
            if self._limit_reached:
                self._always_eager, self._limit_reached = None, False

    def captured(self, args: list[Any]) -> CapturedGraph | None:
        """The capture that a call with these arguments would replay."""
        return self._graphs.get(self._key(args))

    def _call(self, args: list[Any]) -> list[Any]:
        warming = bool(warming_threads) and threading.get_ident() in warming_threads
        if self._always_eager is not None:
            self._report_skip()
            return self._placeholders(args) if warming else self._eager(args)
        graph = self._single
        if graph is None or self._scalars:
            key = self._key(args)
            if key in self._eager_keys:
                return self._placeholders(args) if warming else self._eager(args)
            graph = self._graphs.get(key)
            if graph is not None:
                self._keep_at_hand(graph, args)
        if graph is None or (self._options.force_recapture and not warming):
            reason = "new key" if graph is None else "force_recapture is set"
            # Not held here while it is captured anew.
            graph = None
            graph = self._capture(args, reason)
        if warming:
            return self._placeholders(args) if graph is None else graph.device_graph.blank(args)
        while graph is not None:
            outputs = self._replay(graph, args)
            if not isinstance(outputs, tuple):
                return outputs
            reason = self._why_captured_anew(graph, outputs, args)
            graph = None
            graph = self._capture(args, reason)
        return self._eager(args)

    def _replay(self, graph: CapturedGraph, args: list[Any]) -> list[Any] | InputProblem:
        if self._checks_held:
            self._report_held_outputs(graph)
        self._verified_after += 1
        verifies = self._options.verify_every and self._verified_after % self._options.verify_every == 0
        snapshot = self._verification.before(args) if verifies else None
        outputs = graph.device_graph.run(args)
        if isinstance(outputs, tuple):
            self._verified_after -= 1
            return outputs
        graph.record.replays += 1
        if snapshot is not None:
            self._verification.check(snapshot, args, outputs)
        chosen = self._options.clone_output
        if chosen is not False:
            views = self._program.input_views
            outputs = [
                out.clone()
                if isinstance(out, torch.Tensor) and i not in views and (chosen is True or i in chosen)
                else out
                for i, out in enumerate(outputs)
            ]
        return outputs

    def _report_held_outputs(self, graph: CapturedGraph) -> None:
        if not graph.device_graph.held_outputs():
            return
        message = (
            f"{self._program.name}: an output of the last call is still held and would be overwritten by this one. "
            "Drop it or clone it first, or use live_outputs='preserve'."
        )
        if self._options.live_outputs == "error":
            raise ReplayError(message)
        if not self._warned_held:
            self._warned_held = True
            warnings.warn(message, stacklevel=2)

    def _capture(self, args: list[Any], reason: str) -> CapturedGraph | None:
        self._check_admitted(args)
        key = self._key(args)
        old = self._graphs.pop(key, None)
        self._single = None
        if old is not None:
            old.device_graph.close()
            old.record.state = "dropped"
        recaptures = old is not None
        # Its memory is free for the new capture.
        del old
        if self._captures >= self._options.capture_limit:
            self._limit_reached = True
            self._run_eagerly_from_now(f"capture_limit={self._options.capture_limit} is reached; last reason: {reason}")
            return None
        pool = self._pool if self._pool is not None else self._runtime.open_pool(self._program.device)
        if pool.closed:
            raise OptionError(f"{self._program.name} is to be captured for a new key, but {pool!r} was closed.")
        start = time.perf_counter()
        try:
            # The program has its casts already.
            with torch._C._DisableAutocast():
                device_graph = self._runtime.record(self._program, args, pool, self._options)
        except UnsupportedGraph as obstacle:
            self._skip_key(key, obstacle)
            return None
        elapsed_ms = (time.perf_counter() - start) * 1e3
        self._captures += 1
        ledger.count("captures")
        if recaptures:
            ledger.count("recaptures")
        record = GraphRecord(
            name=self._program.name,
            state="captured",
            reason=reason,
            key=str(key),
            nodes=device_graph.nodes,
            streams=device_graph.streams,
            pool=pool.id,
            arena_nbytes=device_graph.footprint.nbytes,
            copied_nbytes=self._copied_nbytes(args) + device_graph.copied_nbytes,
            capture_ms=elapsed_ms,
            device_graph=weakref.ref(device_graph),
            inputs=tuple((plan.source, plan.role.value, _nbytes(args[plan.index])) for plan in self._program.inputs),
        )
        ledger.add(record)
        ledger.add_pool(pool)
        if self._program.dump is not None:
            self._program.dump.tape(str(key), device_graph.describe())
        graph = CapturedGraph(key, device_graph, record, pool)
        self._graphs[key] = graph
        self._keep_at_hand(graph, args)
        log.info(
            "captured %s key %s: %d nodes, %d arena bytes, %.1f ms",
            record.name,
            key,
            record.nodes,
            record.arena_nbytes,
            elapsed_ms,
        )
        return graph

    def _why_captured_anew(self, graph: CapturedGraph, problem: InputProblem, args: list[Any]) -> str:
        """Raises InputMoved where the options say so."""
        what, index = problem
        if what == "lost":
            return "the memory of an output was resized or freed"
        plan = self._program.inputs[index]
        if what == "mismatched":
            return f"input {index} ({plan.source}) has another shape, strides or dtype"
        old, new = graph.device_graph.captured_address(index), args[index].data_ptr()
        message = f"input {index} ({plan.source}, {plan.role.value}) was at {old:#x}, now {new:#x}"
        # Where another program is to serve these arguments, that they lie elsewhere is no error.
        self._check_admitted(args)
        if self._options.on_input_move == "error":
            raise InputMoved(f"{message}. Keep the tensor alive and in place, or set on_input_move='recapture'.")
        return message

    def _keep_at_hand(self, graph: CapturedGraph, args: list[Any]) -> None:
        if not self._options.force_recapture:
            self._single = graph
            self._numbers = [args[index] for index in self._scalars]

    def _has_same_numbers(self, args: list[Any]) -> bool:
        """As those of the last call, so that its graph serves this one; 1, 1.0 and True differ."""
        numbers = [args[index] for index in self._scalars]
        return numbers == self._numbers and all(map(is_, map(type, numbers), map(type, self._numbers)))

    def _key(self, args: list[Any]) -> GraphKey:
        return GraphKey.of([args[index] for index in self._scalars])

    def _eager(self, args: list[Any]) -> list[Any]:
        self._check_admitted(args)
        ledger.count("eager_calls")
        with torch.no_grad(), torch._C._DisableAutocast():
            return list(self._program.gm(*args))

    def _check_admitted(self, args: list[Any]) -> None:
        """Raises NotAdmitted. Not needed at a replay, which compares its arguments' forms with the capture's."""
        if self._program.why_not_admitted is not None:
            reason = self._program.why_not_admitted(args)
            if reason is not None:
                raise NotAdmitted(reason)

    def _copied_nbytes(self, args: list[Any]) -> int:
        """The most that a call copies of its inputs."""
        copies = self._options.clone_input or self._options.on_input_move == "copy"
        return sum(_nbytes(args[p.index]) for p in self._program.inputs if copies and p.role is InputRole.USER)

    def _placeholders(self, args: list[Any]) -> list[Any]:
        """What an eager call would return, with zeros for values; nothing is executed."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad(), torch._C._DisableAutocast():
            fakes = [mode.from_tensor(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
            try:
                made = self._program.gm(*fakes)
            except (RuntimeError, NotImplementedError) as error:
                raise CannotGoOn(f"{self._program.name} runs eagerly, and its results are not known before") from error
        return [self._placeholder(i, out, args) if isinstance(out, torch.Tensor) else out for i, out in enumerate(made)]

    def _placeholder(self, index: int, form: torch.Tensor, args: list[Any]) -> torch.Tensor:
        base = self._program.input_views.get(index)
        if base is not None:
            return args[base].as_strided(form.shape, form.stride(), form.storage_offset())
        return torch.empty_strided(form.shape, form.stride(), dtype=form.dtype, device=self._program.device).zero_()

    def _skip_key(self, key: GraphKey, obstacle: UnsupportedGraph) -> None:
        self._eager_keys.add(key)
        self._note_eager(str(obstacle), str(key), obstacle)

    def _run_eagerly_from_now(
        self, reason: str, *, obstacle: UnsupportedGraph | None = None, warn: bool = True
    ) -> None:
        self._always_eager = reason
        self._graphs.clear()
        self._single = None
        self._skip_record = self._note_eager(reason, "", obstacle, warn=warn)
        self._skip_reported = True

    def _report_skip(self) -> None:
        """Into a report that was reset since: a graph stands there again from its next call on."""
        if not self._skip_reported and self._skip_record is not None:
            ledger.add(self._skip_record)
            self._skip_reported = True

    def _note_eager(
        self, reason: str, key: str, obstacle: UnsupportedGraph | None, *, warn: bool = True
    ) -> GraphRecord:
        record = GraphRecord(self._program.name, "skipped", reason, key)
        if obstacle is not None:
            record.operator, record.source = obstacle.operator, obstacle.source
        ledger.add(record)
        if warn:
            for_key = f" for key {key}" if key not in ("", "()") else ""
            warnings.warn(
                f"airgraph: {self._program.name} runs eagerly{for_key}: {reason}. Results are right, but not replayed.",
                stacklevel=2,
            )
        return record


def _nbytes(arg: Any) -> int:
    return arg.nbytes if isinstance(arg, torch.Tensor) else 0


def _check_clone_output(options: Options, outputs: int) -> None:
    chosen = options.clone_output
    if not isinstance(chosen, bool) and any(index >= outputs for index in chosen):
        raise OptionError(f"option 'clone_output': the graph has {outputs} outputs, got the indices {list(chosen)}.")
