"""Records programs into the graphs of an accelerator that PyTorch can capture: what CUDA and Ascend share."""

from __future__ import annotations

import atexit
import functools
import re
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from airgraph.errors import CapturedElsewhere, SpoiledCapture, UnsupportedGraph
from airgraph.memory.budget import check_budget
from airgraph.memory.footprint import Footprint
from airgraph.memory.locks import renew_after_fork
from airgraph.options import Options
from airgraph.program import source_lines
from airgraph.program.program import CaptureProgram
from airgraph.runtime.accelerator.capture import Capture, Recorded
from airgraph.runtime.accelerator.first_call import FirstCall
from airgraph.runtime.accelerator.footprint import predict_footprint
from airgraph.runtime.accelerator.graph import AcceleratorGraph
from airgraph.runtime.accelerator.pool import DevicePool
from airgraph.runtime.accelerator.stand_ins import StandIn, stand_ins_of, taken
from airgraph.runtime.accelerator.streams import EventPool
from airgraph.runtime.accelerator.timing import Timing
from airgraph.runtime.careful import is_recording, recording
from airgraph.runtime.engine.loading import engine, engine_status
from airgraph.runtime.protocol import Capabilities
from airgraph.runtime.recording.inputs import CaptureInput, buffer_forms
from airgraph.runtime.timeline import Span
from airgraph.torch_internals.versions import pools_leak

__all__ = ["AcceleratorRuntime", "Failure"]

_Made = TypeVar("_Made")
# The first ones of a profile fetch memory.
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Failure:
    """What a device says when a capture fails, and the same in plain words.

    may_pass: another thread may have been the cause, and the next capture may succeed. has_culprit: an operator may
    have been.
    """

    pattern: str
    meaning: str
    may_pass: bool = False
    has_culprit: bool = True


class AcceleratorRuntime(ABC):
    """Serves `DeviceRuntime` for a device whose torch module looks like `torch.cuda`.

    One capture at a time in the process: that is what the devices allow.
    """

    device_type: str
    capabilities: Capabilities
    # The capture_error_mode where none was chosen.
    capture_error_mode: str = "global"
    # Random operators, as ATen names them, whose numbers are those of the capture at each replay.
    repeated_random: frozenset[str] = frozenset()
    failures: tuple[Failure, ...]

    def __init__(self) -> None:
        """Raises UnsupportedGraph without the native engine, which looks after the memory that outputs lie in."""
        status = engine_status()
        if not status.loaded:
            remedy = str(status.remedy).removesuffix(".")
            raise UnsupportedGraph(
                f"graphs on {self.device_type} need the native engine, and {status.problem}. {remedy}"
            )
        self._lock = threading.RLock()
        renew_after_fork(self, "_lock")
        self._side_streams: dict[int, Any] = {}
        self._streams: dict[tuple[int, str, int], Any] = {}
        self._events: dict[tuple[int, str, bool], Any] = {}
        self._event_pools: dict[int, EventPool] = {}
        self._adopted: weakref.WeakValueDictionary[Any, DevicePool] = weakref.WeakValueDictionary()

    @property
    @abstractmethod
    def module(self) -> Any:
        """torch.cuda, or what has its names."""

    @abstractmethod
    def new_graph(self) -> Any:
        """An empty graph: capture_begin, capture_end, pool, replay, reset."""

    @abstractmethod
    def new_external_event(self) -> Any:
        """An event that a graph may record for work outside, or wait for where it was recorded outside."""

    @abstractmethod
    def start_routing(self, device: torch.device, pool_handle: Any) -> None:
        """From now on what this thread allocates comes from the pool. Takes a use of it."""

    @abstractmethod
    def stop_routing(self, device: torch.device, pool_handle: Any) -> None:
        """End the routing of allocations to a pool, which a failed capture may leave; else a RuntimeError."""

    @abstractmethod
    def release_pool(self, device: torch.device, pool_handle: Any) -> None:
        """Take back one use of a pool."""

    # Whether an event within a graph notes its time at each replay.
    times_graphs = False

    def new_timing_event(self) -> Any:
        """An event that notes its time, also as part of a graph where that `times_graphs`."""
        return self.module.Event(enable_timing=True)

    # The device's own settings that kernels are chosen by, beside those that torch has for all; None: it has none.
    settings: Callable[[], Hashable] | None = None

    def forget_workspaces(self, streams: Sequence[Any]) -> None:
        """Let libraries take the memory that they work in on these streams anew. Override where they keep some."""
        return

    def refuse_setup(self) -> None:
        """Raises UnsupportedGraph where the process is set up in a way that its graphs cannot be captured in."""
        return

    def pool_segments(self, pool_handle: Any) -> list[dict[str, Any]]:
        own = tuple(pool_handle)
        return [each for each in self.module.memory_snapshot() if tuple(each.get("segment_pool_id", ())) == own]

    def is_capturing(self) -> bool:
        """Whether the current device's current stream is."""
        return bool(self.module.is_current_stream_capturing())

    def capturing_on(self, device: torch.device) -> Callable[[], bool]:
        # The device's own, without another call around it where there is no other device: it is asked at each call.
        asked: Callable[[], bool] = self.module.is_current_stream_capturing
        if self.module.device_count() < 2:
            return asked

        def asked_there() -> bool:
            with self.module.device(device):
                return asked()

        return asked_there

    def forget_capture(self, device: torch.device, pool: DevicePool, *, has_begun: bool) -> None:
        was_routed = True
        try:
            self.stop_routing(device, pool.handle)
        except RuntimeError:
            was_routed = False
        # Of pinned memory, which the allocator of the host routes by itself.
        engine().stop_host_routing(str(device), tuple(pool.handle))
        if pools_leak() and (has_begun or was_routed):
            with suppress(RuntimeError):
                self.release_pool(device, pool.handle)

    def open_pool(self, device: torch.device | None = None) -> DevicePool:
        device = self._with_index(device)
        with self.module.device(device):
            return DevicePool(device, self, self.module.graph_pool_handle())

    def adopt_pool(self, handle: object, device: torch.device) -> DevicePool | None:
        if not (isinstance(handle, tuple) and len(handle) == 2):
            return None
        key = (self._with_index(device), handle)
        pool = self._adopted.get(key)
        if pool is None:
            pool = self._adopted[key] = DevicePool(key[0], self, handle)
        return pool

    def stream(self, tag: str, priority: int = 0) -> Any:
        key = (self.module.current_device(), tag, priority)
        if key not in self._streams:
            self._streams[key] = self.module.Stream(priority=priority)
        return self._streams[key]

    def event(self, tag: str, *, external: bool = False) -> Any:
        key = (self.module.current_device(), tag, external)
        if key not in self._events:
            self._events[key] = self.new_external_event() if external else self.module.Event()
        return self._events[key]

    def event_pool(self) -> EventPool:
        index = self.module.current_device()
        return self._event_pools.setdefault(index, EventPool(self.module.Event))

    def synchronize(self) -> None:
        self.module.synchronize()

    def record(
        self,
        program: CaptureProgram,
        inputs: Sequence[CaptureInput],
        pool: DevicePool,
        options: Options,
        call: list[Any] | None = None,
    ) -> AcceleratorGraph:
        _leave_devices_at_exit()
        self.refuse_setup()
        self._check_random_operators(program)
        if is_recording():
            raise UnsupportedGraph("it is called by an operator of a graph that is being captured")
        return self._alone_on(program.device, lambda: self._record(program, inputs, pool, options, call))

    def profile(self, program: CaptureProgram, arguments: Sequence[StandIn], options: Options) -> tuple[Span, ...]:
        """When each operator of a program runs, on memory of its own: no argument changes, and no random state.

        Where the device notes times within a graph a replay is timed, else the operators one by one, as in eager.
        Raises UnsupportedGraph where one fails on what stands for the arguments.
        """
        with torch.random.fork_rng([program.device.index or 0], device_type=self.device_type):
            return self._alone_on(program.device, lambda: self._profile(program, arguments, options))

    def _profile(self, program: CaptureProgram, arguments: Sequence[StandIn], options: Options) -> tuple[Span, ...]:
        side, current = self._side_stream(program.device), self.module.current_stream()
        side.wait_stream(current)
        try:
            with self.module.stream(side):
                inputs = taken(arguments, program.device)
                return self._timed(Capture(self, program, inputs, {}, self.open_pool(program.device), options))
        except UnsupportedGraph:
            self._recover()
            raise
        except RuntimeError as error:
            self._recover()
            raise self.obstacle(error) from error
        finally:
            current.wait_stream(side)

    def _timed(self, capture: Capture) -> tuple[Span, ...]:
        timing = Timing(self.new_timing_event)
        if self.times_graphs:
            graph = capture.record(timing).graph
            try:
                for _ in range(_ROUNDS):
                    graph.replay()
                self.module.synchronize()
                return timing.spans()
            finally:
                capture.discard(graph)
        for _ in range(_ROUNDS):
            timing = Timing(self.new_timing_event)
            capture.run_timed(timing)
        self.module.synchronize()
        return timing.spans()

    def _alone_on(self, device: torch.device, work: Callable[[], _Made]) -> _Made:
        """One thread at a time runs operators for a graph."""
        with self._lock, recording(), torch.no_grad(), self.module.device(device):
            return work()

    def _record(
        self,
        program: CaptureProgram,
        inputs: Sequence[CaptureInput],
        pool: DevicePool,
        options: Options,
        call: list[Any] | None,
    ) -> AcceleratorGraph:
        # What operators take is worked out only where somebody asks for it: it costs more than the capture.
        predicted = predict_footprint(program, inputs, with_results=options.memory_budget is not None)
        check_budget(pool, predicted, options.memory_budget)
        held_nbytes = pool.nbytes if options.memory_budget is not None else 0
        graph = AcceleratorGraph(program, inputs, pool.take(predicted), options, self.settings)
        if graph.meets_a_capture():
            raise CapturedElsewhere("a stream that a graph of its pool was called on is being captured")
        # An argument may be an output of a neighbour, and the capture may use its place.
        graph.begin()
        before = pool.held()
        first: FirstCall | None = None
        has_run = False
        try:
            side = self._side_stream(program.device)
            side.wait_stream(self.module.current_stream())
            with self.module.stream(side):
                # Those of another pool's graphs, which may run meanwhile.
                self.forget_workspaces([side])
                with pool.routed():
                    buffers = {
                        index: form.place(pool.inputs.block(position, form.nbytes))
                        for position, (index, form) in enumerate(buffer_forms(inputs).items())
                    }
                    graph.bind(inputs, buffers)
                    capture = Capture(self, program, inputs, buffers, pool, options)
                    if self.capabilities.runs_to_capture:
                        generator = self.module.default_generators[program.device.index or 0]
                        graph.copy_inputs([each.arg for each in inputs] if call is None else call)
                        if call is None:
                            has_run = True
                            capture.warm_up(generator)
                        else:
                            first = FirstCall(capture.run(generator), call, graph)
                self.forget_workspaces([side])
                side.synchronize()
                recorded = self._recorded(capture)
            self.module.current_stream().wait_stream(side)
            profile = functools.partial(self.profile, program, stand_ins_of(inputs), options)
            graph.complete(recorded, None if first is None else first.outputs(), profile)
            after = pool.held()
            # What operators keep, of what the run and the capture made, lies where graphs captured before may write.
            graph.captured(others=bool(after.blocks - before.blocks))
            arena_nbytes = max(predicted.arena_nbytes, after.arena_nbytes - before.arena_nbytes)
        except UnsupportedGraph as error:
            outputs = self._after_failure(error.finished if first is None else first.outputs, program.device)
            error.finished = None
            _with_outputs(error, outputs, has_run=has_run)
            raise
        except RuntimeError as error:
            outputs = self._after_failure(None if first is None else first.outputs, program.device)
            # No name for it here: with its traceback it would hold what the attempt took, until garbage is collected.
            raise _with_outputs(self.obstacle(error), outputs, has_run=has_run) from error
        except BaseException:
            # The call's own error, or a signal handler's.
            self._after_failure(None, program.device)
            raise
        if options.memory_budget is not None and pool.nbytes > max(options.memory_budget, held_nbytes):
            nbytes, done = pool.nbytes, graph.first_outputs
            del recorded, graph
            self._recover()
            reason = (
                f"memory_budget={options.memory_budget}: the pool would have grown to {nbytes} bytes, more than the "
                f"{pool.nbytes_with(predicted)} predicted"
            )
            raise _with_outputs(UnsupportedGraph(reason), done, has_run=has_run)
        graph.footprint = Footprint(arena_nbytes, predicted.inputs_nbytes)
        return graph

    def _recorded(self, capture: Capture) -> Recorded:
        try:
            return capture.record()
        except UnsupportedGraph as error:
            if self.capabilities.runs_to_capture or not isinstance(error.__cause__, torch.OutOfMemoryError):
                raise
        # No run before it took the memory: what the allocator caches cannot be given back during a capture, but now.
        self._recover()
        return capture.record()

    def _after_failure(self, finished: Callable[[], list[Any]] | None, device: torch.device) -> list[Any] | None:
        """The outputs of the call, if it was run: `finished` makes them on the current stream."""
        side = self._side_streams.get(device.index or 0)
        if side is not None:
            self.module.current_stream().wait_stream(side)
        # Before its memory is given back to the device.
        outputs = None if finished is None else finished()
        self._recover()
        return outputs

    def _recover(self) -> None:
        """After a failure: forget what is pending, so that eager work goes on."""
        for step in (self.module.synchronize, self.module.empty_cache):
            with suppress(RuntimeError):
                step()

    def obstacle(self, error: BaseException, operator: str = "", source: str = "") -> UnsupportedGraph:
        """What a failure of the device means; the first line of its message where it is not known."""
        failure = self._known(error)
        if failure is not None:
            kind = SpoiledCapture if failure.may_pass else UnsupportedGraph
            return kind(failure.meaning, operator=operator, source=source)
        text = str(error).strip()
        first_line = text.splitlines()[0] if text else type(error).__name__
        return UnsupportedGraph(f"it fails in a capture ({first_line})", operator=operator, source=source)

    def has_culprit(self, error: BaseException) -> bool:
        failure = self._known(error)
        return failure is None or failure.has_culprit

    def _known(self, error: BaseException) -> Failure | None:
        text = str(error)
        return next((each for each in self.failures if re.search(each.pattern, text, re.IGNORECASE)), None)

    def _check_random_operators(self, program: CaptureProgram) -> None:
        for node in program.gm.graph.nodes:
            if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
                continue
            name = node.target.name()
            if not self.capabilities.rng_in_graphs or name.partition("::")[2].partition(".")[0] in self.repeated_random:
                raise UnsupportedGraph(
                    f"a graph of {self.device_type} would repeat its random numbers at each replay",
                    operator=name,
                    source=source_lines.of_node(node),
                )

    def _side_stream(self, device: torch.device) -> Any:
        index = device.index or 0
        if index not in self._side_streams:
            self._side_streams[index] = self.module.Stream()
        return self._side_streams[index]

    def _with_index(self, device: torch.device | None) -> torch.device:
        if device is not None and device.index is not None:
            return device
        return torch.device(self.device_type, self.module.current_device())


def _with_outputs(obstacle: UnsupportedGraph, outputs: list[Any] | None, *, has_run: bool) -> UnsupportedGraph:
    obstacle.outputs, obstacle.has_run = outputs, has_run
    return obstacle


@functools.cache
def _leave_devices_at_exit() -> None:
    """Called when the device is in use, so that its package shuts it down after this at the end of the process."""
    atexit.register(engine().DeviceLaunch.leave_devices)
