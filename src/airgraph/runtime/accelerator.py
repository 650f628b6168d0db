"""Records programs into the graphs of an accelerator that PyTorch can capture: what CUDA and Ascend share."""

from __future__ import annotations

import gc
import re
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch

from airgraph.errors import ReplayError, UnsupportedGraph
from airgraph.memory.pool import MemoryPool
from airgraph.options import Options
from airgraph.program.inputs import InputPlan, InputRole
from airgraph.program.program import CaptureProgram
from airgraph.runtime.base import Capabilities, DeviceMemory
from airgraph.runtime.cpu.engine import engine
from airgraph.runtime.interpretation import Interpretation, Owned, finish_output, shares_memory

__all__ = ["AcceleratorGraph", "AcceleratorRuntime", "DevicePool", "Failure"]


@dataclass(frozen=True, slots=True)
class Failure:
    """What a device says when a capture fails, and the same in plain words."""

    pattern: str
    meaning: str


class DevicePool(MemoryPool):
    """A private pool of the device's caching allocator; it holds memory as long as a graph in it lives."""

    def __init__(self, device: torch.device, handle: Any, segments: Callable[[], Sequence[dict[str, Any]]]) -> None:
        super().__init__(device)
        self.handle = handle
        self._segments = segments
        self._graphs: weakref.WeakSet[AcceleratorGraph] = weakref.WeakSet()

    def add(self, graph: AcceleratorGraph) -> None:
        self._graphs.add(graph)

    @property
    def nbytes(self) -> int:
        """Bytes of the segments that the allocator keeps for this pool."""
        own = tuple(self.handle)
        return sum(s["total_size"] for s in self._segments() if tuple(s.get("segment_pool_id", ())) == own)

    @property
    def graphs(self) -> int:
        return len(self._graphs)


class AcceleratorRuntime(ABC):
    """Serves `DeviceRuntime` for a device whose torch module looks like `torch.cuda`.

    One capture at a time in the process: that is what the devices allow.
    """

    device_type: str
    capabilities: Capabilities
    # Whether kernels and library handles must have run once before a capture.
    needs_warm_up: bool
    failures: tuple[Failure, ...]

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._side_streams: dict[int, Any] = {}
        self._streams: dict[tuple[int, str], Any] = {}
        self._events: dict[tuple[int, str], Any] = {}

    @property
    @abstractmethod
    def module(self) -> Any:
        """torch.cuda, or what has its names."""

    @abstractmethod
    def new_graph(self) -> Any:
        """An empty graph: capture_begin, capture_end, replay, reset."""

    @abstractmethod
    def stop_routing(self, device: torch.device, pool: DevicePool) -> None:
        """Take back from the allocator what a failed capture_end left: allocations must not go to the pool any more."""

    def open_pool(self, device: torch.device | None = None) -> DevicePool:
        device = self._with_index(device)
        with self.module.device(device):
            return DevicePool(device, self.module.graph_pool_handle(), self.module.memory_snapshot)

    def stream(self, tag: str, priority: int = 0) -> Any:
        key = (self.module.current_device(), tag)
        if key not in self._streams:
            self._streams[key] = self.module.Stream(priority=priority)
        return self._streams[key]

    def event(self, tag: str) -> Any:
        key = (self.module.current_device(), tag)
        if key not in self._events:
            self._events[key] = self.module.Event()
        return self._events[key]

    def synchronize(self) -> None:
        self.module.synchronize()

    def memory(self, device: torch.device | None = None) -> DeviceMemory:
        return DeviceMemory(*self.module.mem_get_info(self._with_index(device)))

    def record(self, program: CaptureProgram, args: list[Any], pool: DevicePool, options: Options) -> AcceleratorGraph:
        self._check_random_operators(program)
        device = program.device
        with self._lock, torch.no_grad(), self.module.device(device):
            side = self._side_stream(device)
            side.wait_stream(self.module.current_stream())
            try:
                with self.module.stream(side):
                    buffers = {
                        plan.index: torch.empty_like(args[plan.index])
                        for plan in program.inputs
                        if plan.role is InputRole.USER
                    }
                    if self.needs_warm_up:
                        self._warm_up(program, args)
                    side.synchronize()
                    recorded = self._capture(program, args, buffers, pool, options)
            except torch.OutOfMemoryError as error:
                self.module.empty_cache()
                raise UnsupportedGraph(self.in_plain_words(error)) from error
            self.module.current_stream().wait_stream(side)
        graph = AcceleratorGraph(self, program, args, buffers, recorded, options)
        pool.add(graph)
        return graph

    def in_plain_words(self, error: BaseException) -> str:
        """What a failure of the device means; the first line of its message where it is not known."""
        text = str(error)
        for failure in self.failures:
            if re.search(failure.pattern, text, re.IGNORECASE):
                return failure.meaning
        return f"it fails in a capture ({text.strip().splitlines()[0] if text.strip() else type(error).__name__})"

    def _capture(
        self,
        program: CaptureProgram,
        args: list[Any],
        buffers: dict[int, torch.Tensor],
        pool: DevicePool,
        options: Options,
    ) -> _Recorded:
        graph = self.new_graph()
        run = _Run(self, program, args, buffers)
        before = pool.nbytes
        with _no_garbage_collection():
            try:
                graph.capture_begin(pool=pool.handle, capture_error_mode=options.capture_error_mode)
                try:
                    outputs = run.run()
                except BaseException:
                    # The capture must end before anything else can happen on the device.
                    with suppress(RuntimeError):
                        graph.capture_end()
                    raise
                graph.capture_end()
            except BaseException as error:
                self._recover(graph, program.device, pool)
                if isinstance(error, UnsupportedGraph) or not isinstance(error, RuntimeError):
                    raise
                raise UnsupportedGraph(self.in_plain_words(error), operator=run.operator, source=run.source) from error
        return _Recorded(graph, outputs, run.calls, max(0, pool.nbytes - before))

    def _recover(self, graph: Any, device: torch.device, pool: DevicePool) -> None:
        """After a failed capture: end what is open, forget pending errors, so that eager work goes on."""
        for step in (graph.reset, lambda: self.stop_routing(device, pool), self.module.synchronize):
            with suppress(RuntimeError):
                step()

    def _warm_up(self, program: CaptureProgram, args: list[Any]) -> None:
        """Run the program once, on copies of what it writes and with torch's generators put back afterwards."""
        generator = self.module.default_generators[program.device.index or 0]
        state = generator.get_state()
        try:
            _Run(self, program, _with_copies_of_mutated(program, args), {}).run()
        finally:
            generator.set_state(state)

    def _check_random_operators(self, program: CaptureProgram) -> None:
        if self.capabilities.rng_in_graphs:
            return
        for node in program.gm.graph.nodes:
            if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                raise UnsupportedGraph(
                    f"graphs of {self.device_type} repeat the same random numbers at each replay",
                    operator=node.target.name(),
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


@dataclass(frozen=True, slots=True)
class _Recorded:
    """calls: operators that do work; views are none. outputs: as Interpretation.run gives them."""

    graph: Any
    outputs: list[Any]
    calls: int
    pool_growth: int


class AcceleratorGraph:
    """Serves `DeviceGraph`. Its outputs lie in the pool; an output still held is given memory of its own."""

    streams = 1

    def __init__(
        self,
        runtime: AcceleratorRuntime,
        program: CaptureProgram,
        args: list[Any],
        buffers: dict[int, torch.Tensor],
        recorded: _Recorded,
        options: Options,
    ) -> None:
        self._runtime = runtime
        self._graph = recorded.graph
        self._preserve = options.live_outputs == "preserve"
        self._launch = engine().DeviceLaunch()
        self._addresses: dict[int, int] = {}
        for plan in program.in_place(frozen_parameter=options.frozen_parameter):
            self._addresses[plan.index] = args[plan.index].data_ptr()
            self._launch.add_fixed_input(plan.index, self._addresses[plan.index])
        for index, buffer in buffers.items():
            self._launch.add_copied_input(index, buffer)
        self._outputs: list[Any] = []
        made: list[torch.Tensor] = []
        for out in recorded.outputs:
            if isinstance(out, torch.Tensor):
                self._outputs.append(Owned(len(made)))
                made.append(out)
            else:
                self._outputs.append(out)
        for out in made:
            self._launch.add_output(out)
        self._all_owned = len(made) == len(self._outputs)
        self.nodes = recorded.calls
        self.arena_nbytes = recorded.pool_growth
        self.copied_nbytes = sum(buffer.nbytes for buffer in buffers.values())
        self.check = self._launch.check

    def captured_address(self, index: int) -> int:
        return self._addresses[index]

    def held_outputs(self) -> int:
        return len(self._launch.held_outputs())

    def run(self, args: list[Any]) -> list[Any]:
        launch = self._launch
        if self._preserve:
            for slot in launch.held_outputs():
                launch.give_away(slot)
        launch.copy_inputs(args)
        self.replay()
        made: list[Any] = launch.outputs()
        if self._all_owned:
            return made
        return [finish_output(out, made, args) for out in self._outputs]

    def replay(self) -> None:
        try:
            self._graph.replay()
        except RuntimeError as error:
            raise ReplayError(f"the replay failed on the device: {error}") from error


class _Run(Interpretation):
    """Runs each operator on the device, which executes or captures it. Remembers the last, for messages."""

    def __init__(
        self, runtime: AcceleratorRuntime, program: CaptureProgram, args: list[Any], buffers: dict[int, torch.Tensor]
    ) -> None:
        super().__init__(program, args)
        self._runtime = runtime
        self._buffers = buffers
        self.operator = ""
        self.source = ""
        self.calls = 0

    def bring_in(self, plan: InputPlan, arg: Any) -> Any:
        return self._buffers.get(plan.index, arg)

    def call(self, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], where: str) -> Any:
        self.operator, self.source = op.name(), where
        self.calls += not op.is_view
        try:
            return op(*args, **kwargs)
        except RuntimeError as error:
            reason = self._runtime.in_plain_words(error)
            raise UnsupportedGraph(reason, operator=self.operator, source=where) from error

    def made_here(self, value: torch.Tensor) -> bool:
        if any(shares_memory(value, buffer) for buffer in self._buffers.values()):
            raise UnsupportedGraph("an output shares memory with the copy of an input")
        return not any(shares_memory(value, constant) for constant in _constants(self._program.gm))


def _constants(gm: torch.fx.GraphModule) -> Iterator[torch.Tensor]:
    for node in gm.graph.find_nodes(op="get_attr"):
        value: Any = gm
        for name in str(node.target).split("."):
            value = getattr(value, name)
        if isinstance(value, torch.Tensor):
            yield value


def _with_copies_of_mutated(program: CaptureProgram, args: list[Any]) -> list[Any]:
    """The arguments, those that the program writes on a copy of their storage, shared as before."""
    copies: dict[int, torch.Tensor] = {}
    substituted = list(args)
    for plan in program.inputs:
        if plan.role is not InputRole.MUTATED:
            continue
        arg = args[plan.index]
        storage = arg.untyped_storage()
        if storage._cdata not in copies:
            elements = storage.nbytes() // arg.itemsize
            copies[storage._cdata] = arg.as_strided((elements,), (1,), 0).clone()
        whole = copies[storage._cdata].view(arg.dtype)
        substituted[plan.index] = whole.as_strided(arg.shape, arg.stride(), arg.storage_offset())
    return substituted


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A collected tensor or graph would free device memory, which a capture does not allow."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
