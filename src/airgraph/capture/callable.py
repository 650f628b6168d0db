"""The callable that stands for one FX graph: captures once a key, replays from then on."""

from __future__ import annotations

import logging
import threading
import time
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from airgraph.capture.key import GraphKey
from airgraph.capture.ledger import GraphRecord, ledger
from airgraph.capture.pools import pool_for
from airgraph.capture.verification import Verification
from airgraph.capture.warmup import CannotGoOn, warming_threads
from airgraph.errors import CacheError, FailedOperator, InputMoved, OptionError, ReplayError, UnsupportedGraph
from airgraph.memory.pool import MemoryPool, TurnLike
from airgraph.memory.turn import Turn
from airgraph.options import Options
from airgraph.program.inputs import InputRole
from airgraph.program.program import CaptureProgram
from airgraph.program.support import check_capturable
from airgraph.runtime.base import DeviceGraph, DeviceRuntime, InputProblem, TakesTurns
from airgraph.runtime.cpu.engine import engine

__all__ = ["CannotCapture", "CapturedGraph", "GraphedCallable", "NotAdmitted", "Overlapping", "Unsuited"]

log = logging.getLogger(__name__)


class NotAdmitted(CacheError):
    """A program is not right for the arguments of a call; nothing was executed."""


_NEW_KEY = "new key"
# Of captures for one call; more than one only where torch's settings change under it.
_MOST_ATTEMPTS = 3
# How many values of something that changes stand in a message.
_MOST_NAMED = 8


class CannotCapture(CacheError):
    """A program of a cache file fails where one that was traced would not; nothing was executed."""


class Unsuited(NotAdmitted):
    """No traced program is right for the arguments of a call, only the function itself."""


class Overlapping(Unsuited):
    """An argument that is written shares memory with another."""


@dataclass(frozen=True, slots=True, eq=False)
class CapturedGraph:
    """One capture of a program; `record` is its row in the report."""

    key: GraphKey
    device_graph: DeviceGraph
    record: GraphRecord
    pool: MemoryPool


@dataclass(frozen=True, slots=True)
class _Usual:
    """What served the last call, for the next one to find at once.

    call: takes the turn by itself. numbers: index, type and value of each number of the key; 1, 1.0 and True differ.
    """

    call: Callable[[list[Any]], list[Any] | InputProblem]
    record: GraphRecord
    numbers: tuple[tuple[int, type, Any], ...] | None

    def serves(self, args: list[Any]) -> bool:
        for index, kind, value in self.numbers or ():
            arg = args[index]
            if arg != value or arg.__class__ is not kind:
                return False
        return True


class GraphedCallable:
    """Calls a program by replaying a capture of it.

    1. The key of a call is its numbers; a call with a new key captures, which executes nothing.
    2. Every call then copies its user inputs and replays exactly once.
    3. What a capture took for granted of arguments and settings is compared at each call. An input used in place that
       has moved follows `on_input_move`; where the rest differs, another capture of the key serves, or a new one.
    4. `capture_limit` captures are kept, those that were used last.
    5. What cannot be captured runs eagerly, with one warning.

    Takes a list of arguments and empties it, as torch's compilers expect (`_boxed_call`). Calls of all graphs of a pool
    are serialised, from whatever thread. It does not keep its inputs alive.
    """

    _boxed_call = True

    def __init__(
        self,
        program: CaptureProgram,
        runtime: DeviceRuntime,
        options: Options,
        uncaptured: Callable[..., Sequence[Any]] | None = None,
        *,
        distrusted: bool = False,
    ) -> None:
        """uncaptured: what the program was lowered from, for arguments that it is not right for. distrusted: whether it
        comes from a file; where an operator of it fails in a capture, CannotCapture is raised instead of running it.
        """
        self._distrusted = distrusted
        self._program = program
        self._runtime = runtime
        self._options = options
        self._uncaptured = uncaptured
        self._pool = pool_for(program, runtime, options)
        # With a pool for each capture, no other callable shares any of them.
        self._turn: TurnLike = self._pool.turn if self._pool is not None else Turn()
        self._scalars = [plan.index for plan in program.inputs if plan.role is InputRole.SCALAR]
        self._written = [plan.index for plan in program.inputs if plan.role is InputRole.MUTATED]
        # Of each key, the one that served last at the front.
        self._graphs: dict[GraphKey, list[CapturedGraph]] = {}
        # All of them, the one that served last at the end.
        self._kept: OrderedDict[CapturedGraph, None] = OrderedDict()
        self._usual: _Usual | None = None
        self._eager_keys: set[GraphKey] = set()
        self._always_eager: str | None = None
        self._skip_record: GraphRecord | None = None
        self._skip_reported = False
        self._warned: set[str] = set()
        self._checks_held = options.live_outputs in ("warn", "error")
        # Whether what a replay makes is handed out as it is, with nothing to look at before.
        self._hands_out = (
            not self._checks_held
            and options.clone_output is False
            and not options.verify_every
            and not options.force_recapture
        )
        self._verification = Verification(program, runtime, options)
        self._verified_after = 0
        _check_clone_output(options, len(program.gm.graph.output_node().args[0]))  # type: ignore[arg-type]
        ledger.add_callable(self)
        if options.force_eager:
            self._run_eagerly_from_now("force_eager is set", warn=False)
            return
        try:
            check_capturable(program.gm, program.device)
        except UnsupportedGraph as obstacle:
            self._run_eagerly_from_now(str(obstacle), obstacle=obstacle)

    def __call__(self, args: list[Any]) -> list[Any]:
        try:
            usual = self._usual
            if usual is not None and (usual.numbers is None or usual.serves(args)) and not warming_threads:
                # The usual call, without a detour: the engine takes the turn.
                outputs = usual.call(args)
                if outputs.__class__ is list:
                    usual.record.replays += 1
                    return outputs
            # Not held here while it is captured anew.
            del usual
            with self._turn.having(self._program.name):
                return self._call(args)
        finally:
            args.clear()

    def call(self, *args: Any) -> list[Any]:
        """The same with the arguments one by one."""
        return self(list(args))

    def reset(self) -> None:
        """Forget all captures; the next call captures anew. Raises ReplayError from within a call of this graph."""
        with self._turn.having(f"reset of {self._program.name}"):
            self._usual = None
            for graph in self._kept:
                graph.device_graph.close()
            self._kept.clear()
            self._graphs.clear()
            self._eager_keys.clear()
            self._warned.clear()
            self._skip_reported = False

    @property
    def captures(self) -> list[CapturedGraph]:
        """Those that are kept, the one that served last at the end."""
        return list(self._kept)

    def captured(self, args: list[Any]) -> CapturedGraph | None:
        """The capture that a call with these arguments is served by, if it was captured for arguments like them."""
        kept = self._graphs.get(self._key(args))
        return kept[0] if kept else None

    def _call(self, args: list[Any]) -> list[Any]:
        warming = bool(warming_threads) and threading.get_ident() in warming_threads
        if self._always_eager is not None:
            self._report_skip()
            return self._placeholders(args) if warming else self._eager(args)
        key = self._key(args)
        if key in self._eager_keys:
            return self._placeholders(args) if warming else self._eager(args)
        if any(isinstance(arg, torch.Tensor) and engine().is_foreign(arg) for arg in args):
            # Such as a fake tensor: there is no memory to capture, or none that is the argument's.
            return self._on_foreign(args)
        if warming:
            kept = self._graphs.get(key)
            graph = kept[0] if kept else self._capture(args, _NEW_KEY)
            return self._placeholders(args) if graph is None else graph.device_graph.blank(args)
        reason = _NEW_KEY
        if self._options.force_recapture and self._graphs.get(key):
            self._drop(self._graphs[key][0])
            reason = "force_recapture is set"
        try:
            for _ in range(_MOST_ATTEMPTS):
                outcome = self._replay_kept(key, args)
                if isinstance(outcome, list):
                    return outcome
                if self._capture(args, outcome or reason) is None:
                    return self._eager(args)
        except NotAdmitted as refusal:
            if self._uncaptured is None:
                raise
            return self._without_lowering(args, refusal)
        # Settings that another thread changes all the time.
        return self._eager(args)

    def _on_foreign(self, args: list[Any]) -> list[Any]:
        """By what the program was lowered from, with gradients where they are on: what a transform wraps may need them.

        Not by the final FX graph, which writes into its own intermediates: those need not be of the arguments' kind.
        """
        if self._uncaptured is None:
            raise Unsuited("an argument is a fake tensor, a subclass, wrapped by a transform, or has a tangent")
        ledger.count("eager_calls")
        return list(self._uncaptured(*args))

    def _without_lowering(self, args: list[Any], refusal: NotAdmitted) -> list[Any]:
        """By what the program was lowered from: one operator after the other, on the arguments as they are."""
        assert self._uncaptured is not None
        ledger.count("eager_calls")
        self._warn_once(
            "refused",
            f"airgraph: {self._program.name} runs eagerly where it was traced for other arguments: {refusal}. Results "
            "are right, but not replayed. Pass tensors that share no memory with what is written.",
        )
        return list(self._uncaptured(*args))

    def _replay_kept(self, key: GraphKey, args: list[Any]) -> list[Any] | str:
        """The outputs by a capture that there is; else why none serves, "" if there is none."""
        problems: list[tuple[CapturedGraph, InputProblem]] = []
        snapshot = None
        verifies = self._options.verify_every and (self._verified_after + 1) % self._options.verify_every == 0
        for graph in list(self._graphs.get(key, ())):
            if self._checks_held:
                self._report_held_outputs(graph)
            if verifies and snapshot is None:
                snapshot = self._verification.before(args)
            run = graph.device_graph.run if self._pool is not None else _run_in_own_pool(graph)
            outputs = run(args)
            if isinstance(outputs, tuple):
                problems.append((graph, outputs))
                continue
            graph.record.replays += 1
            self._verified_after += 1
            self._keep_at_hand(graph, args)
            if snapshot is not None:
                self._verification.check(snapshot, args, outputs)
            return self._handed_out(outputs)
        # In words only where none serves.
        reasons = [self._why_not(graph, problem, args) for graph, problem in problems]
        return reasons[0] if reasons else ""

    def _handed_out(self, outputs: list[Any]) -> list[Any]:
        chosen = self._options.clone_output
        if chosen is False:
            return outputs
        views = self._program.input_views
        return [
            out.clone() if isinstance(out, torch.Tensor) and i not in views and (chosen is True or i in chosen) else out
            for i, out in enumerate(outputs)
        ]

    def _report_held_outputs(self, graph: CapturedGraph) -> None:
        if not graph.device_graph.held_outputs():
            return
        message = (
            f"{self._program.name}: an output of the last call is still held and would be overwritten by this one. "
            "Drop it or clone it first, or use live_outputs='preserve'."
        )
        if self._options.live_outputs == "error":
            raise ReplayError(message)
        self._warn_once("held", message)

    def _capture(self, args: list[Any], reason: str) -> CapturedGraph | None:
        self._check_admitted(args)
        key = self._key(args)
        pool = self._pool if self._pool is not None else self._runtime.open_pool(self._program.device)
        if pool.closed:
            raise OptionError(f"{self._program.name} is to be captured for a new key, but {pool!r} was closed.")
        self._make_room(reason)
        start = time.perf_counter()
        device_graph: DeviceGraph | None = None
        try:
            # The program has its casts already.
            with torch._C._DisableAutocast():
                device_graph = self._runtime.record(self._program, args, pool, self._options)
        except UnsupportedGraph as obstacle:
            if self._distrusted and isinstance(obstacle, FailedOperator):
                raise CannotCapture(str(obstacle)) from obstacle
            self._skip_key(key, obstacle)
        except Exception as error:
            if self._distrusted:
                raise CannotCapture(f"{type(error).__name__}: {error}") from error
            raise
        if device_graph is None:
            if self._pool is not None:
                # In its turn: what the attempt took is free for the eager run.
                pool.strike_off()
            return None
        elapsed_ms = (time.perf_counter() - start) * 1e3
        ledger.count("captures")
        if reason != _NEW_KEY:
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
        self._graphs.setdefault(key, []).insert(0, graph)
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

    def _make_room(self, reason: str) -> None:
        """Drop what was used least recently, so that one more capture may be kept."""
        limit = self._options.capture_limit
        while len(self._kept) >= limit:
            what_changes = self._what_changes(reason)
            self._drop(next(iter(self._kept)))
            self._warn_once(
                "limit",
                f"airgraph: {self._program.name} keeps capture_limit={limit} captures and drops the one used least "
                f"recently for each new one, which costs a capture whenever it comes again. What keeps changing: "
                f"{what_changes}. Raise capture_limit, or pad to fewer shapes.",
            )

    def _what_changes(self, reason: str) -> str:
        """What tells the captures that are kept from one another, for a person to read."""
        changing = []
        for position, index in enumerate(self._scalars):
            values = {graph.key.scalars[position].value for graph in self._kept}
            if len(values) > 1:
                some = ", ".join(map(str, sorted(values)[:_MOST_NAMED]))
                changing.append(f"{self._program.inputs[index].source} (such as {some})")
        others = [graph for graph in self._kept if graph.record.reason != _NEW_KEY]
        if len(others) * 2 > len(self._kept) or not changing:
            changing.append(reason)
        return "; ".join(changing)

    def _drop(self, graph: CapturedGraph) -> None:
        if self._usual is not None and self._usual.record is graph.record:
            self._usual = None
        self._kept.pop(graph, None)
        self._graphs[graph.key] = [each for each in self._graphs[graph.key] if each is not graph]
        graph.device_graph.close()
        graph.record.state = "dropped"

    def _why_not(self, graph: CapturedGraph, problem: InputProblem, args: list[Any]) -> str:
        """Why a capture does not serve a call, in words. Raises InputMoved and NotAdmitted where that is no reason to
        capture anew."""
        what, index = problem
        if what == "lost":
            self._drop(graph)
            return "the memory of an output was resized or freed"
        if what == "settings":
            return "settings of torch that kernels depend on have changed"
        plan = self._program.inputs[index]
        if what == "overlapping":
            raise Overlapping(f"input {index} ({plan.source}) shares memory with one that the graph writes")
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
        """It served last, and is asked first."""
        kept = self._graphs[graph.key]
        if kept[0] is not graph:
            # As a whole: an exception of a signal handler may fall anywhere.
            self._graphs[graph.key] = [graph, *(each for each in kept if each is not graph)]
        self._kept[graph] = None
        self._kept.move_to_end(graph)
        if self._hands_out and isinstance(graph.device_graph, TakesTurns):
            numbers = tuple((index, type(args[index]), args[index]) for index in self._scalars)
            self._usual = _Usual(graph.device_graph.call, graph.record, numbers or None)

    def _warn_once(self, what: str, message: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            warnings.warn(message, stacklevel=2)

    def _key(self, args: list[Any]) -> GraphKey:
        return GraphKey.of([args[index] for index in self._scalars])

    def _eager(self, args: list[Any]) -> list[Any]:
        try:
            self._check_admitted(args)
        except NotAdmitted as refusal:
            if self._uncaptured is None:
                raise
            return self._without_lowering(args, refusal)
        ledger.count("eager_calls")
        with torch.no_grad(), torch._C._DisableAutocast():
            return list(self._program.gm(*args))

    def _check_admitted(self, args: list[Any]) -> None:
        """Raises NotAdmitted. Not needed at a replay, which compares its arguments' forms with the capture's."""
        found = engine().first_overlap(args, self._written) if self._written else None
        if found is not None:
            # The program was lowered for arguments of which none shares memory with one that it writes.
            written, other = (self._program.inputs[index].source for index in found)
            raise Overlapping(f"{written} is written and shares memory with {other}")
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


def _run_in_own_pool(graph: CapturedGraph) -> Callable[[list[Any]], list[Any] | InputProblem]:
    """`run` in the turn of a pool that no other graph has."""
    if isinstance(graph.device_graph, TakesTurns):
        return graph.device_graph.call

    def run(args: list[Any]) -> list[Any] | InputProblem:
        with graph.pool.turn.having(graph.record.name):
            return graph.device_graph.run(args)

    return run


def _nbytes(arg: Any) -> int:
    return arg.nbytes if isinstance(arg, torch.Tensor) else 0


def _check_clone_output(options: Options, outputs: int) -> None:
    chosen = options.clone_output
    if not isinstance(chosen, bool) and any(index >= outputs for index in chosen):
        raise OptionError(f"option 'clone_output': the graph has {outputs} outputs, got the indices {list(chosen)}.")
