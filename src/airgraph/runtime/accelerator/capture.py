"""One capture of a program into the graph of an accelerator, and what is done when it fails."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch.fx import Node

from airgraph.errors import UnsupportedGraph
from airgraph.options import Options
from airgraph.program import source_lines
from airgraph.program.collectives import begun
from airgraph.program.inputs import InputRole, with_copies
from airgraph.program.operators import is_view_operator
from airgraph.program.program import CaptureProgram
from airgraph.program.streams import priorities_of
from airgraph.program.trees import leaves_of
from airgraph.runtime.accelerator.streams import CaptureStreams, StreamsDevice
from airgraph.runtime.accelerator.timing import Timing
from airgraph.runtime.engine.loading import engine
from airgraph.runtime.protocol import Capabilities, FailedCall
from airgraph.runtime.recording.collection import uncollected
from airgraph.runtime.recording.inputs import BufferForm, CaptureInput
from airgraph.runtime.recording.walk import Walk, constants_of, shares_memory

__all__ = ["Capture", "CaptureDevice", "Recorded"]

# Operators of these namespaces stay on the stream that they are called on, and write nothing that nobody sees.
_ON_ONE_STREAM = {"aten", "prims", "prim"}


class CaptureDevice(StreamsDevice, Protocol):
    """What a capture asks of its device."""

    @property
    def capture_error_mode(self) -> str:
        """The one to take where none was chosen."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """max_streams: how many may exist at once."""
        ...

    def new_graph(self) -> Any:
        """An empty graph: capture_begin, capture_end, pool, replay, reset."""
        ...

    def open_pool(self, device: torch.device | None = None) -> Any:
        """A new, empty pool: handle, nbytes, graphs."""
        ...

    def is_capturing(self) -> bool:
        """Whether the current stream is, also where the capture has failed."""
        ...

    def forget_workspaces(self, streams: Sequence[Any]) -> None:
        """Let libraries take the memory that they work in on these streams anew."""
        ...

    def forget_capture(self, device: torch.device, pool: Any, *, has_begun: bool) -> None:
        """Take back from the allocator what a capture that failed left: the routing to the pool, and its use.

        has_begun: else it may have failed before it took either.
        """
        ...

    def synchronize(self) -> None: ...

    def obstacle(self, error: BaseException, operator: str = "", source: str = "") -> UnsupportedGraph:
        """What a failure of the device means; the first line of its message where it is not known."""
        ...

    def has_culprit(self, error: BaseException) -> bool:
        """Whether an operator may have caused what the end of a capture fails with; else only the device has."""
        ...


@dataclass(frozen=True, slots=True)
class Recorded:
    """calls: operators that do work; views are none. outputs: as Walk.run gives them.

    copied_nbytes: what the operators copy at each replay. streams: how many the graph runs on. held: what must live as
    long as the graph does.
    """

    graph: Any
    outputs: list[Any]
    calls: int
    copied_nbytes: int
    streams: int
    held: list[Any]


@dataclass(frozen=True, slots=True)
class Capture:
    """A capture on the current stream, which must not be the default one. buffers: of inputs copied in, by index."""

    device: CaptureDevice
    program: CaptureProgram
    inputs: Sequence[CaptureInput]
    buffers: dict[int, torch.Tensor]
    pool: Any
    options: Options

    def warm_up(self, generator: torch.Generator) -> None:
        """Run the program once, on copies of what it writes and with the generator put back afterwards."""
        state = generator.get_state()
        copies = with_copies(self.program.inputs, [each.arg for each in self.inputs], (InputRole.MUTATED,))
        try:
            _Run(
                self.device,
                self.program,
                [replace(each, arg=arg) for each, arg in zip(self.inputs, copies, strict=True)],
                self.buffers,
            ).run()
        finally:
            generator.set_state(state)

    def run(self, generator: torch.Generator) -> list[Any]:
        """Run the program once, in earnest, on the graph's buffers. Results as Walk.run gives them.

        generator: the device's. Raises UnsupportedGraph where it cannot be captured: with `finished` where all of it
        has run by then, and without where it may be run again. Raises FailedCall where it has failed halfway.
        """
        run = _Run(self.device, self.program, self.inputs, self.buffers)
        of_host, of_device = torch.get_rng_state(), generator.get_state()
        try:
            return run.run()
        except UnsupportedGraph as error:
            if run.is_done:
                # What it returns is what no graph can return. Not made here, where memory comes from the pool.
                error.finished = run.as_eager
            elif run.has_written:
                raise FailedCall(error.__cause__ or error) from error
            else:
                # It will be run again.
                torch.set_rng_state(of_host)
                generator.set_state(of_device)
            raise

    def run_timed(self, timing: Timing) -> None:
        """Run the program as it is captured, on its streams, on the arguments themselves."""
        _Run(self.device, self.program, self.inputs, streams=self._streams(), timing=timing).run()

    def record(self, timing: Timing | None = None) -> Recorded:
        """timing: its events are recorded at each replay.

        Raises UnsupportedGraph, after which device and pool are as before.
        """
        try:
            return self._attempt(self.pool, timing=timing)
        except _EndFailed as failed:
            operator, source = self._culprit() if self.device.has_culprit(failed.error) else ("", "")
            raise self.device.obstacle(failed.error, operator, source) from failed.error

    def _streams(self) -> CaptureStreams | None:
        priorities = priorities_of(self.program.gm.graph)
        room = self.device.capabilities.max_streams
        most = self.options.max_streams if self.options.max_streams is not None else (room or sys.maxsize) - 1
        return CaptureStreams.of(self.device, priorities, most)

    def _attempt(self, pool: Any, stop_before: int | None = None, timing: Timing | None = None) -> Recorded:
        """stop_before: capture only the calls before this one."""
        graph = self.device.new_graph()
        streams = self._streams()
        beside = [] if streams is None else streams.taken
        # Those of another pool's graphs, which may run meanwhile.
        self.device.forget_workspaces(beside)
        run = _Run(self.device, self.program, self.inputs, self.buffers, stop_before, streams, timing)
        outputs: list[Any] = []
        try:
            with uncollected(), _block_class()(self, graph, pool), suppress(_Stopped):
                outputs = run.run()
        finally:
            # This pool's, which later graphs of other pools must not work in.
            self.device.forget_workspaces([self.device.module.current_stream(), *beside])
        held = [] if streams is None else [streams.held]
        return Recorded(graph, outputs, run.calls, run.copied_nbytes, len(beside) + 1, held)

    def discard(self, graph: Any) -> None:
        for step in (graph.reset, self.device.synchronize):
            with suppress(RuntimeError):
                step()

    def _culprit(self) -> tuple[str, str]:
        """Name and source line of the operator after which a capture can no longer end.

        ATen's own operators stay on their stream, so only the others are tried, from the last to the first.
        """
        operators = [n for n in self.program.gm.graph.nodes if isinstance(n.target, torch._ops.OpOverload)]
        suspects = [(i, n) for i, n in enumerate(operators) if n.target.namespace not in _ON_ONE_STREAM]
        for index, node in reversed(suspects):
            pool = self.device.open_pool(self.program.device)
            try:
                recorded = self._attempt(pool, stop_before=index)
            except (_EndFailed, UnsupportedGraph, RuntimeError):
                continue
            self.discard(recorded.graph)
            return node.target.name(), source_lines.of_node(node)
        if suspects:
            return suspects[0][1].target.name(), source_lines.of_node(suspects[0][1])
        return "", ""


class _EndFailed(Exception):
    def __init__(self, error: RuntimeError) -> None:
        super().__init__(str(error))
        self.error = error


class _Stopped(Exception):
    pass


class _Run(Walk):
    """Runs each operator on the device, which executes or captures it."""

    def __init__(
        self,
        device: CaptureDevice,
        program: CaptureProgram,
        inputs: Sequence[CaptureInput],
        buffers: dict[int, torch.Tensor] | None = None,
        stop_before: int | None = None,
        streams: CaptureStreams | None = None,
        timing: Timing | None = None,
    ) -> None:
        """Without buffers the arguments themselves are used, as in eager; without streams all work is on one."""
        super().__init__(program, inputs)
        self._streams = streams
        self._timing = timing
        self.overlaps = streams is not None
        self._device = device
        self._buffers = buffers or {}
        self._stop_before = stop_before
        self._position = 0
        self.calls = 0
        # Whether an operator has begun that may write an argument, or what nobody sees.
        self.has_written = False

    def run(self) -> list[Any]:
        if self._streams is None:
            return super().run()
        self._streams.fork()
        try:
            outputs = super().run()
        except BaseException:
            # Else the capture cannot end. What fails here has failed before.
            with suppress(RuntimeError):
                self._streams.join()
            raise
        self._streams.join()
        return outputs

    def mark(self, node: Node) -> None:
        if self._streams is not None:
            self._streams.mark(node)
        if self._timing is not None:
            self._timing.mark(node)

    def buffer_for(self, given: CaptureInput, form: BufferForm) -> torch.Tensor:
        return self._buffers.get(given.index, given.arg)

    def call(self, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], where: str) -> Any:
        if self._position == self._stop_before:
            raise _Stopped
        self._position += 1
        self.has_written = (
            self.has_written or op.namespace not in _ON_ONE_STREAM or self._writes_an_argument(op, args, kwargs)
        )
        self.calls += not is_view_operator(op)
        try:
            if self._streams is None or self.stream is None:
                result = self._called(op, args, kwargs, where)
            else:
                with self._streams.around(self.stream):
                    result = self._called(op, args, kwargs, where)
        except RuntimeError as error:
            raise self._device.obstacle(error, op.name(), where) from error
        begun.note(op)
        return result

    def _called(self, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], where: str) -> Any:
        if self._timing is None:
            return op(*args, **kwargs)
        return self._timing.call(op, args, kwargs, self.stream, where)

    def as_eager(self) -> list[Any]:
        """What the program returns, once it is done: views of arguments, and the rest in memory of its own."""
        return [self._eager_output(i, out) for i, out in enumerate(self._program.gm.graph.output_node().args[0])]  # type: ignore[arg-type]

    def _eager_output(self, index: int, out: Any) -> Any:
        if not isinstance(out, Node):
            return out
        if index in self._program.input_views:
            return self._on_real_input(out)
        value = self._values[out]
        if not isinstance(value, torch.Tensor) or self._is_an_argument_s(value):
            return value
        return value.clone()

    def _is_an_argument_s(self, value: torch.Tensor) -> bool:
        """Whether it lies in the memory of an argument that is used in place."""
        return any(
            each.form is None and isinstance(each.arg, torch.Tensor) and shares_memory(value, each.arg)
            for each in self._inputs
        )

    def _writes_an_argument(self, op: torch._ops.OpOverload, args: Any, kwargs: Any) -> bool:
        return op._schema.is_mutable and any(
            map(self._is_an_argument_s, leaves_of(torch.Tensor, (args, *kwargs.values())))
        )

    def made_here(self, value: torch.Tensor) -> bool:
        if any(shares_memory(value, buffer) for buffer in self._buffers.values()):
            raise UnsupportedGraph("an output shares memory with the copy of an input")
        return not any(shares_memory(value, constant) for constant in constants_of(self._program.gm))


@functools.cache
def _block_class() -> Any:
    # Made at first use: the engine may have to be compiled.
    class CaptureBlock(engine().Block):  # type: ignore[misc]
        """What is called within is captured. However it is left, at whatever point, the device captures no longer."""

        def __init__(self, capture: Capture, graph: Any, pool: Any) -> None:
            super().__init__()
            self._capture, self._graph, self._pool = capture, graph, pool
            self._begun = self._forgotten = False
            self._ended_well: bool | None = None

        def _enter(self) -> None:
            chosen = self._capture.options.capture_error_mode
            mode = self._capture.device.capture_error_mode if chosen == "auto" else chosen
            self._graph.capture_begin(pool=self._pool.handle, capture_error_mode=mode)
            self._begun = True

        def _leave(self, kind: type[BaseException] | None, *raised: object) -> None:
            if kind is not None:
                self._recover()
                return
            try:
                self._end()
            except RuntimeError as error:
                if self._has_pool():
                    # What was captured is well, and no operator's fault: it could not be made ready to run.
                    raise self._capture.device.obstacle(error) from error
                raise _EndFailed(error) from error

        def _recover(self) -> None:
            # The capture must end before anything else can happen on the device. How far it came is what device and
            # graph say: a signal may fall between what they do and a note of it.
            if self._capture.device.is_capturing():
                self._begun = True
                with suppress(RuntimeError):
                    self._end()
            if self._ended_well is None:
                self._ended_well = self._has_pool()
            self._capture.discard(self._graph)
            if not self._ended_well and not self._forgotten:
                # Noted first: a use that is left costs memory, one that is taken back twice a neighbour's.
                self._forgotten = True
                device = self._capture.program.device
                self._capture.device.forget_capture(device, self._pool, has_begun=self._begun)

        def _end(self) -> None:
            with warnings.catch_warnings():
                # Nothing is wrong with a graph that hands out views, or memory that nobody has written; one that is
                # left has its own reason.
                warnings.filterwarnings("ignore", r"The \w+ Graph is empty")
                self._graph.capture_end()

        def _has_pool(self) -> bool:
            """Whether the graph itself gives its pool back, as one does whose capture ended well."""
            try:
                self._graph.pool()
            except RuntimeError:
                return False
            return True

    return CaptureBlock
