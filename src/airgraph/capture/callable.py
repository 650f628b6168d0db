"""The callable that stands for one FX graph: captures once a key, replays from then on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from airgraph.capture.agreement import Agreement
from airgraph.capture.captures import NEW_KEY, CapturedGraph, Captures, Made
from airgraph.capture.fallback import Fallback, Mode
from airgraph.capture.key import GraphKey
from airgraph.capture.ledger import GraphRecord, ledger
from airgraph.capture.pools import pool_for
from airgraph.capture.verification import Verification
from airgraph.capture.warmup import warming_threads
from airgraph.errors import InputMoved, NotAdmitted, OptionError, Overlapping, ReplayError, UnsupportedGraph
from airgraph.memory.pool import PoolLock
from airgraph.memory.replay_lock import ReplayLock
from airgraph.options import Options
from airgraph.program.program import CaptureProgram
from airgraph.program.support import check_capturable
from airgraph.runtime.careful import careful_threads, is_recording
from airgraph.runtime.engine.loading import engine
from airgraph.runtime.problem import InputProblem, ProblemKind
from airgraph.runtime.protocol import DeviceRuntime, FailedCall, LocksItsPool

__all__ = ["GraphedCallable", "Usual"]

# Of captures for one call; more than one only where torch's settings change under it.
_MOST_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Usual:
    """The capture that served the last call, for the next one to find at once."""

    graph: LocksItsPool
    record: GraphRecord
    call: Callable[[Sequence[Any]], list[Any] | None]

    def explained(self, failure: BaseException) -> BaseException:
        """What a caller is to be told of what `call` raised."""
        is_of_replay = isinstance(failure, self.graph.failure) and not isinstance(failure, ReplayError)
        return self.graph.error_of(failure) if is_of_replay else failure


class GraphedCallable:
    """Calls a program by replaying a capture of it.

    1. The key of a call is its numbers; a call with a new key captures. Where the device has to run a program before it
       can capture it, that run is the call itself; elsewhere a capture executes nothing.
    2. Every other call copies its user inputs and replays exactly once.
    3. What a capture took for granted of arguments and settings is compared at each call. An input used in place that
       has moved follows `on_input_move`; where the rest differs, another capture of the key serves, or a new one.
    4. `capture_limit` captures are kept, those that were used last.
    5. What cannot be captured runs eagerly, with one warning.

    Takes a list of arguments and empties it, as torch's compilers expect (`_boxed_call`). Calls of all graphs of a pool
    are serialised, from whatever thread. It does not keep its inputs alive.
    """

    # Read at each call of a cached function by the engine, where it lies in the object.
    __slots__ = ("__dict__", "__weakref__", "usual")

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
        self._program = program
        # None: by nobody, ever.
        self._is_capturing = runtime.capturing_on(program.device)
        # Whether a launch of the engine asks that by itself.
        self._launch_asks = self._is_capturing is not None and engine().tells_captures_quickly(program.device.type)
        self._options = options
        self._pool = pool_for(program, runtime, options)
        # With a pool for each capture, no other callable shares any of them.
        self._replay_lock: PoolLock = self._pool.replay_lock if self._pool is not None else ReplayLock()
        self._fallback = Fallback(program, uncaptured)
        self._captures = Captures(
            program, runtime, options, self._pool, distrusted=distrusted, warn_once=self._fallback.warn_once
        )
        # For calls that need no more than it; None: there was none yet, or it is gone.
        self.usual: Usual | None = None
        self._checks_held = options.live_outputs in ("warn", "error")
        # Whether what a replay makes is handed out as it is, with nothing to look at before.
        self._hands_out = (
            not self._checks_held
            and options.clone_output is False
            and not options.verify_every
            and not options.force_recapture
        )
        self._verification = Verification(program, runtime, options)
        self._agreement = Agreement.of(program, runtime.capabilities, self._fallback, self._captures)
        self._runs_to_capture = runtime.capabilities.runs_to_capture
        self._verified_after = 0
        _check_clone_output(options, len(program.gm.graph.output_node().args[0]))  # type: ignore[arg-type]
        ledger.add_callable(self)
        if options.force_eager:
            self._fallback.take_all("force_eager is set", warn=False)
            return
        try:
            check_capturable(program.gm, program.device)
        except UnsupportedGraph as obstacle:
            self._fallback.take_all(str(obstacle), obstacle=obstacle)

    def __call__(self, args: list[Any]) -> list[Any]:
        try:
            outputs = self._as_usual(args)
            return self._with_care(args) if outputs is None else outputs
        finally:
            args.clear()

    def call(self, *args: Any) -> list[Any]:
        """The same with the arguments one by one."""
        outputs = self._as_usual(args)
        return self._with_care(list(args)) if outputs is None else outputs

    def _as_usual(self, args: Sequence[Any]) -> list[Any] | None:
        """By the capture that served the last call, without a detour: the engine takes the replay lock. None where
        something is not as it was then."""
        usual = self.usual
        if usual is None:
            return None
        try:
            return usual.call(args)
        except usual.graph.failure as failure:
            explained = usual.explained(failure)
            if explained is failure:
                raise
            raise explained from failure

    def _with_care(self, args: list[Any]) -> list[Any]:
        if self._is_capturing is not None and (self._is_capturing() or is_recording()):
            # Into a graph of the user's, or of another callable's, or before such a capture: its operators, and nothing
            # of ours. Who waited for our pool here could wait for whoever waits for the device.
            return self._fallback.run(args)
        with self._replay_lock.holding(self._program.name):
            return self._call(args)

    def reset(self) -> None:
        """Forget all captures; the next call captures anew. Raises ReplayError from within a call of this graph."""
        with self._replay_lock.holding(f"reset of {self._program.name}"):
            self._forget()

    def end_group(self, name: str, *, waits: bool) -> None:
        """Drop all captures where the program communicates in the group of this name, whose end is near.

        Its next call captures anew, with a group that has the name by then. waits: for a call on another thread; else
        nothing is done where there is one. Raises ReplayError as `reset` does.
        """
        if self._agreement is None or not self._agreement.is_about(name):
            return
        lock = self._replay_lock
        with lock.holding(f"the end of a group of {self._program.name}") if waits else lock.if_free() as is_held:
            if is_held is False:
                return
            self._agreement.forget()
            for graph in self.captures:
                self._drop(graph)
            self._forget()

    def _forget(self) -> None:
        self.usual = None
        self._captures.forget_all()
        self._fallback.forget()
        if self._pool is not None:
            # Under its replay lock: leases that ended just now found it held.
            self._pool.strike_off()

    @property
    def captures(self) -> list[CapturedGraph]:
        """Those that are kept, the one that served last at the end."""
        return self._captures.all()

    def captured(self, args: list[Any]) -> CapturedGraph | None:
        """The capture that a call with these arguments is served by, if it was captured for arguments like them."""
        return next(iter(self._captures.of(self._captures.key(args))), None)

    def _call(self, args: list[Any]) -> list[Any]:
        warming = bool(warming_threads) and (me := threading.get_ident()) in warming_threads
        if warming:
            warming_threads[me] += 1
        if self._fallback.mode is Mode.EAGER:
            self._fallback.report_again()
        key = self._captures.key(args)
        if self._agreement is not None and not _has_foreign(args):
            outputs = self._agreement.before_a_call(
                key, args, runs=not warming, capture=self._capture_new, drop=self._drop
            )
            if outputs is not None:
                return outputs
        if self._fallback.serves(key):
            return self._fallback.placeholders(args) if warming else self._fallback.run(args)
        if _has_foreign(args):
            # Such as a fake tensor: there is no memory to capture, or none that is the argument's.
            return self._fallback.on_foreign(args)
        if warming:
            return self._warm(key, args)
        reason = NEW_KEY
        if self._options.force_recapture and self._captures.of(key):
            # Not held here while it is captured anew.
            self._drop(self._captures.of(key)[0])
            reason = "force_recapture is set"
        try:
            for _ in range(_MOST_ATTEMPTS):
                outcome = self._replay_kept(key, args)
                if isinstance(outcome, list):
                    return outcome
                made = self._capture(key, args, outcome or reason)
                if made.outputs is not None:
                    return made.outputs
                if made.graph is None:
                    return self._fallback.run(args)
        except NotAdmitted as refusal:
            return self._fallback.on_refused(args, refusal)
        # Settings that another thread changes all the time.
        return self._fallback.run(args)

    def _warm(self, key: GraphKey, args: list[Any]) -> list[Any]:
        """Capture, and what a call would return with zeros for values."""
        graph = next(iter(self._captures.of(key)), None) or self._capture(key, args, NEW_KEY, runs=False).graph
        if graph is None:
            return self._fallback.placeholders(args)
        blank: list[Any] = graph.device_graph.blank(args)
        return blank

    def _replay_kept(self, key: GraphKey, args: list[Any]) -> list[Any] | str:
        """The outputs by a capture that there is; else why none serves, "" if there is none."""
        problems: list[tuple[CapturedGraph, InputProblem]] = []
        snapshot = None
        verifies = self._options.verify_every and (self._verified_after + 1) % self._options.verify_every == 0
        for graph in self._captures.of(key):
            if self._checks_held:
                self._report_held_outputs(graph)
            if verifies and snapshot is None:
                snapshot = self._verification.before(args)
            run = graph.device_graph.run if self._pool is not None else _run_in_own_pool(graph)
            outputs = run(args)
            if isinstance(outputs, InputProblem):
                if outputs.kind is ProblemKind.CAPTURING:
                    # As where the current stream is captured.
                    return self._fallback.run(args)
                problems.append((graph, outputs))
                continue
            graph.record.tally[0] += 1
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
        self._fallback.warn_once("held", message)

    def _capture(self, key: GraphKey, args: list[Any], reason: str, *, runs: bool = True) -> Made:
        """One more capture. runs: whether it may run this call.

        Raises what the call raised, where it was run and failed halfway.
        """
        self._fallback.check_admitted(args)
        # It may be dropped for the new one.
        self.usual = None
        graph: CapturedGraph | None = None
        outputs: list[Any] | None = None
        has_run = self._runs_to_capture and not runs
        try:
            graph = self._captures.capture(key, args, reason, runs=runs)
        except UnsupportedGraph as obstacle:
            outputs, has_run = obstacle.outputs, obstacle.has_run
            if outputs is not None:
                ledger.count("eager_calls")
            self._fallback.take(key, obstacle)
        except FailedCall as failed:
            raise failed.error from None
        if graph is not None:
            self._fallback.captured(key)
            self._keep_at_hand(graph, args)
            outputs, graph.device_graph.first_outputs = graph.device_graph.first_outputs, None
            if outputs is not None:
                graph.record.tally[0] += 1
        elif self._pool is not None:
            # Under its replay lock, and once the error is gone, which leads to what the attempt took: that is free for
            # the eager run.
            self._pool.strike_off()
        if self._agreement is not None and (graph is not None or self._fallback.serves(key)):
            self._agreement.tell(key, can_capture=graph is not None)
        return Made(graph, outputs, has_run)

    def _capture_new(self, key: GraphKey, args: list[Any], runs: bool) -> Made:
        return self._capture(key, args, NEW_KEY, runs=runs)

    def _drop(self, graph: CapturedGraph) -> None:
        if self.usual is not None and self.usual.record is graph.record:
            self.usual = None
        self._captures.drop(graph)

    def _why_not(self, graph: CapturedGraph, problem: InputProblem, args: list[Any]) -> str:
        """Why a capture does not serve a call, in words. Raises InputMoved and NotAdmitted where that is no reason to
        capture anew."""
        kind, index = problem
        if kind is ProblemKind.LOST:
            self._drop(graph)
            return "the memory of an output was resized or freed"
        if kind is ProblemKind.OUTDATED:
            self._drop(graph)
            return "an operator of another graph of the pool keeps memory that this one would write"
        if kind is ProblemKind.SETTINGS:
            return "settings of torch that kernels depend on have changed"
        plan = self._program.inputs[index]
        if kind is ProblemKind.OVERLAPPING:
            raise Overlapping(f"input {index} ({plan.source}) shares memory with one that the graph writes")
        if kind is ProblemKind.MISMATCHED:
            form = graph.forms[index]
            change = form.change(args[index]) if form is not None else "it has another shape, strides or dtype"
            return f"input {index} ({plan.source}): {change}"
        old, new = graph.device_graph.captured_address(index), args[index].data_ptr()
        message = f"input {index} ({plan.source}, {plan.role.value}) was at {old:#x}, now {new:#x}"
        # Where another program is to serve these arguments, that they lie elsewhere is no error.
        self._fallback.check_admitted(args)
        if self._options.on_input_move == "error":
            raise InputMoved(f"{message}. Keep the tensor alive and in place, or set on_input_move='recapture'.")
        return message

    def _keep_at_hand(self, graph: CapturedGraph, args: list[Any]) -> None:
        self._captures.served(graph)
        if self._agreement is not None and self._agreement.is_open(graph.key):
            return
        if self._hands_out and isinstance(graph.device_graph, LocksItsPool):
            call = graph.device_graph.usual_call(
                numbers=self._captures.numbers(args),
                tally=graph.record.tally,
                with_care=careful_threads,
                is_capturing=None if self._launch_asks else self._is_capturing,
            )
            self.usual = Usual(graph.device_graph, graph.record, call)


def _has_foreign(args: Sequence[Any]) -> bool:
    return any(isinstance(arg, torch.Tensor) and engine().is_foreign(arg) for arg in args)


def _run_in_own_pool(graph: CapturedGraph) -> Callable[[list[Any]], list[Any] | InputProblem]:
    """`run` under the replay lock of a pool that no other graph has."""
    if isinstance(graph.device_graph, LocksItsPool):
        return graph.device_graph.call

    def run(args: list[Any]) -> list[Any] | InputProblem:
        with graph.pool.replay_lock.holding(graph.record.name):
            return graph.device_graph.run(args)

    return run


def _check_clone_output(options: Options, outputs: int) -> None:
    chosen = options.clone_output
    if not isinstance(chosen, bool) and any(index >= outputs for index in chosen):
        raise OptionError(f"option 'clone_output': the graph has {outputs} outputs, got the indices {list(chosen)}.")
