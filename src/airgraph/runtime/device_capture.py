"""One capture of a program into the graph of an accelerator, and what is done when it fails."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from airgraph.errors import UnsupportedGraph
from airgraph.options import Options
from airgraph.program import source_lines
from airgraph.program.inputs import InputPlan, InputRole
from airgraph.program.program import CaptureProgram
from airgraph.runtime.argument_copies import with_copies
from airgraph.runtime.interpretation import Interpretation, constants_of, shares_memory

__all__ = ["Capture", "CaptureDevice", "Recorded"]

# Operators of these namespaces stay on the stream that they are called on.
_ON_ONE_STREAM = {"aten", "prims", "prim"}


class CaptureDevice(Protocol):
    """What a capture asks of its device."""

    def new_graph(self) -> Any:
        """An empty graph: capture_begin, capture_end, replay, reset."""
        ...

    def open_pool(self, device: torch.device | None = None) -> Any:
        """A new, empty pool: handle, nbytes, graphs."""
        ...

    def forget_capture(self, device: torch.device, pool: Any) -> None:
        """Take back from the allocator what a capture_end that failed left: the routing to the pool, and its use."""
        ...

    def synchronize(self) -> None: ...

    def in_plain_words(self, error: BaseException) -> str:
        """What a failure of the device means; the first line of its message where it is not known."""
        ...


@dataclass(frozen=True, slots=True)
class Recorded:
    """calls: operators that do work; views are none. outputs: as Interpretation.run gives them.

    copied_nbytes: what the operators copy at each replay.
    """

    graph: Any
    outputs: list[Any]
    calls: int
    copied_nbytes: int


@dataclass(frozen=True, slots=True)
class Capture:
    """A capture on the current stream, which must not be the default one. buffers: of user inputs, by index."""

    device: CaptureDevice
    program: CaptureProgram
    args: list[Any]
    buffers: dict[int, torch.Tensor]
    pool: Any
    options: Options

    def warm_up(self, generator: torch.Generator) -> None:
        """Run the program once, on copies of what it writes and with the generator put back afterwards."""
        state = generator.get_state()
        try:
            _Run(self.device, self.program, with_copies(self.program, self.args, (InputRole.MUTATED,))).run()
        finally:
            generator.set_state(state)

    def record(self) -> Recorded:
        """Raises UnsupportedGraph, after which device and pool are as before."""
        try:
            return self._attempt(self.pool)
        except _EndFailed as failed:
            operator, source = self._culprit()
            raise UnsupportedGraph(
                self.device.in_plain_words(failed.error), operator=operator, source=source
            ) from failed.error

    def _attempt(self, pool: Any, stop_before: int | None = None) -> Recorded:
        """stop_before: capture only the calls before this one."""
        graph = self.device.new_graph()
        run = _Run(self.device, self.program, self.args, self.buffers, stop_before)
        outputs: list[Any] = []
        end_failed = False
        with _no_garbage_collection():
            try:
                graph.capture_begin(pool=pool.handle, capture_error_mode=self.options.capture_error_mode)
                try:
                    with suppress(_Stopped):
                        outputs = run.run()
                except BaseException:
                    # The capture must end before anything else can happen on the device.
                    end_failed = True
                    with suppress(RuntimeError):
                        graph.capture_end()
                        end_failed = False
                    raise
                try:
                    graph.capture_end()
                except RuntimeError as error:
                    end_failed = True
                    raise _EndFailed(error) from error
            except BaseException:
                self._discard(graph, pool, end_failed=end_failed)
                raise
        return Recorded(graph, outputs, run.calls, run.copied_nbytes)

    def _discard(self, graph: Any, pool: Any, *, end_failed: bool) -> None:
        for step in (graph.reset, self.device.synchronize):
            with suppress(RuntimeError):
                step()
        if end_failed:
            self.device.forget_capture(self.program.device, pool)

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
            self._discard(recorded.graph, pool, end_failed=False)
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


class _Run(Interpretation):
    """Runs each operator on the device, which executes or captures it."""

    def __init__(
        self,
        device: CaptureDevice,
        program: CaptureProgram,
        args: list[Any],
        buffers: dict[int, torch.Tensor] | None = None,
        stop_before: int | None = None,
    ) -> None:
        super().__init__(program, args)
        self._device = device
        self._buffers = buffers or {}
        self._stop_before = stop_before
        self._position = 0
        self.calls = 0

    def bring_in(self, plan: InputPlan, arg: Any) -> Any:
        return self._buffers.get(plan.index, arg)

    def call(self, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], where: str) -> Any:
        if self._position == self._stop_before:
            raise _Stopped
        self._position += 1
        self.calls += not op.is_view
        try:
            return op(*args, **kwargs)
        except RuntimeError as error:
            raise UnsupportedGraph(self._device.in_plain_words(error), operator=op.name(), source=where) from error

    def made_here(self, value: torch.Tensor) -> bool:
        if any(shares_memory(value, buffer) for buffer in self._buffers.values()):
            raise UnsupportedGraph("an output shares memory with the copy of an input")
        return not any(shares_memory(value, constant) for constant in constants_of(self._program.gm))


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
