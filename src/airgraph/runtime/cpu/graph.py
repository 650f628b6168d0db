"""CPU graphs by hand, with the contract of `torch.cuda.CUDAGraph`.

Between `capture_begin` and `capture_end` every ATen call of this thread is recorded, not executed. Its results are
tensors whose memory is fixed by `capture_end` and filled by `replay`. Tensors from outside are used where they lie,
and stay alive with the graph.
"""

from __future__ import annotations

import enum
import functools
import threading
import weakref
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from airgraph.errors import CaptureError, ReplayError, UnsupportedGraph
from airgraph.memory.footprint import Footprint
from airgraph.memory.pool import ArenaPool
from airgraph.program import source_lines
from airgraph.runtime.cpu import captures
from airgraph.runtime.cpu.assemble import Assembled, assemble, plan_arena
from airgraph.runtime.cpu.engine import engine
from airgraph.runtime.cpu.recorder import Recorder
from airgraph.runtime.cpu.runtime import replay_error
from airgraph.runtime.cpu.streams import Stream, current_stream, leave_streams, stream_depth
from airgraph.runtime.cpu.streams import stream as use_stream
from airgraph.runtime.cpu.tape import BufferKind, Call, Recording, TensorRef

__all__ = ["CPUGraph", "graph", "graph_pool_handle"]


def graph_pool_handle() -> ArenaPool:
    """A new pool that graphs can be captured into."""
    return ArenaPool(engine().Turn())


class _State(enum.Enum):
    EMPTY = "empty"
    CAPTURING = "capturing"
    CAPTURED = "captured"


@dataclass(frozen=True, slots=True)
class _Memory:
    """Memory that a graph uses and others hold too. whole: all of it as bytes. name: for messages."""

    buffer: int
    whole: torch.Tensor
    name: str


class CPUGraph:
    """A recorded sequence of ATen calls. Replays in one pool are serialised, from whatever thread."""

    def __init__(self) -> None:
        self._state = _State.EMPTY
        self._session: _Session | None = None
        self._pool: ArenaPool | None = None
        self._recording: Recording | None = None
        self._assembled: Assembled | None = None
        self._hand: Any = None
        self._memory: list[_Memory] = []
        # That it was captured under, if something depends on it.
        self._default_dtype: torch.dtype | None = None
        self._abandoned: weakref.finalize[Any, Any] | None = None

    def capture_begin(self, pool: ArenaPool | None = None, capture_error_mode: str = "global") -> None:
        """Start recording this thread's ATen calls on the current stream.

        pool: from `graph_pool_handle()` or another graph's `pool()`. capture_error_mode: as for torch.cuda.
        Raises CaptureError if this graph is capturing or has captured, or this thread captures already.
        """
        if self._state is _State.CAPTURING:
            raise CaptureError("capture_begin was called twice. Call capture_end first.")
        if self._state is _State.CAPTURED:
            raise CaptureError("this graph holds a capture already. Call reset() first, or use another CPUGraph.")
        if captures.current() is not None:
            raise CaptureError("captures do not nest: this thread is capturing into another graph.")
        if pool is not None and not isinstance(pool, ArenaPool):
            raise CaptureError(f"pool: expected a handle from graph_pool_handle(), got {type(pool).__name__}.")
        if pool is not None and pool.device_type != "cpu":
            raise CaptureError(f"pool: expected a pool of cpu, got one of {pool.device_type}.")
        if capture_error_mode not in captures.CAPTURE_ERROR_MODES:
            allowed = ", ".join(map(repr, captures.CAPTURE_ERROR_MODES))
            raise CaptureError(f"capture_error_mode: expected one of {allowed}, got {capture_error_mode!r}.")
        self._pool = pool if pool is not None else graph_pool_handle()
        self._session = session = _Session(capture_error_mode)
        try:
            session.enter()
            self._state = _State.CAPTURING
        except BaseException:
            session.break_off()
            self._session, self._state = None, _State.EMPTY
            raise
        # A graph that is lost while it captures must not leave its thread recording.
        self._abandoned = weakref.finalize(self, _leave_if_own, self._session)
        self._abandoned.atexit = False

    def capture_end(self) -> None:
        """Stop recording, plan the memory, make the graph ready to replay.

        Raises CaptureError if it was not capturing, on another thread or stream than capture_begin's (the capture
        goes on), and if something not allowed happened during the capture (which is dropped).
        """
        session = self._session
        if session is None:
            raise CaptureError("capture_end without capture_begin.")
        if threading.get_ident() != session.thread:
            raise CaptureError("capture_end must be called on the thread that capture_begin was called on.")
        if current_stream() is not session.stream:
            raise CaptureError("capture must end on the same stream it began on.")
        self._close(session)
        if session.invalid is not None:
            raise CaptureError(f"the capture was invalidated: {session.invalid}")
        try:
            self._finish(session)
        except UnsupportedGraph as error:
            raise CaptureError(f"the capture failed: {error}") from error

    def replay(self) -> None:
        """Execute the recorded calls once, in order, under torch's settings as they are now.

        Raises CaptureError before capture_end; ReplayError, also where memory that the graph uses was freed or resized.
        """
        # What the tape needs is kept by this call: another thread may reset the graph.
        hand, recording, kept = self._hand, self._recording, self._assembled
        if hand is None or recording is None or kept is None:
            raise CaptureError("replay before capture_end: this graph holds no capture.")
        captures.check_unsafe_call("CPUGraph.replay()")
        if self._default_dtype not in (None, torch.get_default_dtype()):
            raise ReplayError(
                f"the graph computes with integers and was captured under the default dtype {self._default_dtype}, now "
                f"{torch.get_default_dtype()}. Set that one again, or capture again."
            )
        try:
            problem = hand.replay()
            while problem is not None:
                what, index = problem
                if what == "lost":
                    raise ReplayError(
                        f"{self._memory[index].name}: its memory was freed, resized or replaced since the "
                        "capture. Keep it as it was, or capture again."
                    )
                # Kernels are chosen by settings of torch, which have changed.
                with self.pool().turn.having("replay of a CPUGraph"):
                    if self._hand is not None:
                        self._assemble()
                    hand, kept = self._hand, self._assembled
                if hand is None:
                    raise CaptureError("replay of a graph that another thread has reset: it holds no capture.")
                problem = hand.replay()
        except engine().ReplayFailure as failure:
            raise replay_error(recording, failure) from failure

    def reset(self) -> None:
        """Drop the capture. Results that the caller holds stay valid. Raises CaptureError while capturing."""
        if self._state is _State.CAPTURING:
            raise CaptureError("reset while capturing. Call capture_end first.")
        if self._pool is None:
            return
        with self._pool.turn.having("reset of a CPUGraph"):
            self._state = _State.EMPTY
            self._recording = self._assembled = self._hand = None
            self._memory = []

    def pool(self) -> ArenaPool:
        """The pool that this graph was captured into. Raises CaptureError before capture_begin."""
        if self._pool is None:
            raise CaptureError("pool before capture_begin: this graph has no pool.")
        return self._pool

    @property
    def session(self) -> Any:
        """The capture under way, or None."""
        return self._session

    def abort(self) -> None:
        """Drop a capture under way; nothing happens if there is none."""
        session = self._session
        if session is not None:
            session.break_off()
            self._close(session)

    def _close(self, session: _Session) -> None:
        if self._abandoned is not None:
            self._abandoned.detach()
        session.leave()
        self._session = None
        self._state = _State.EMPTY

    def _finish(self, session: _Session) -> None:
        recording = session.recorder.finish()
        self._default_dtype = session.default_dtype if any(map(_promotes, recording.calls)) else None
        memory: list[_Memory] = []
        for index, buffer in enumerate(recording.buffers):
            # Results that the caller holds, and tensors from outside.
            if buffer.kind is BufferKind.MADE and buffer.storage.expired():
                continue
            storage = torch.UntypedStorage._new_with_weak_ptr(buffer.storage.cdata)
            if storage is None:
                continue
            whole = engine().whole(storage)
            if buffer.kind is BufferKind.MADE:
                engine().allocate(whole)
            memory.append(_Memory(index, whole, _name_of(recording, index)))
        self._recording, self._memory = recording, memory
        with self.pool().turn.having("capture_end of a CPUGraph"):
            self._assemble()
        self._state = _State.CAPTURED

    def _assemble(self) -> None:
        """Make the tape, for torch's settings as they are now. In the pool's turn."""
        recording: Any = self._recording
        placed = {
            each.buffer: engine().bytes_at(each.whole.data_ptr(), recording.buffers[each.buffer].nbytes)
            for each in self._memory
        }
        if self._assembled is None:
            arena = plan_arena(recording, placed)
            lease = self.pool().take(Footprint(arena.plan.peak))
        else:
            arena, lease = self._assembled.arena, self._assembled.lease
        self._assembled = assemble(recording, arena, placed, lease)
        self._hand = engine().HandGraph(self._assembled.tape, self.pool().turn)
        for each in self._memory:
            self._hand.add_memory(each.whole)


def graph(
    cpu_graph: CPUGraph,
    pool: ArenaPool | None = None,
    stream: Stream | None = None,
    capture_error_mode: str = "global",
) -> AbstractContextManager[None]:
    """Capture the block into `cpu_graph`: `with airgraph.cpu.graph(g): y = f(x)`.

    pool, capture_error_mode: as for `CPUGraph.capture_begin`. stream: the stream to capture on, by default a new one.
    If the block raises, the capture is dropped and the process is as before.
    """
    if not isinstance(cpu_graph, CPUGraph):
        raise CaptureError(f"expected an airgraph.cpu.CPUGraph, got {type(cpu_graph).__name__}.")
    on = stream if stream is not None else Stream()
    made: AbstractContextManager[None] = _block_class()(cpu_graph, pool, use_stream(on), capture_error_mode)
    return made


@functools.cache
def _block_class() -> Any:
    # Made at first use: the engine may have to be compiled.
    class CaptureBlock(engine().Block):  # type: ignore[misc]
        def __init__(self, cpu_graph: CPUGraph, pool: ArenaPool | None, on: Any, mode: str) -> None:
            super().__init__()
            self._graph, self._pool, self._on, self._mode = cpu_graph, pool, on, mode
            self._before = cpu_graph.session
            self._depth = stream_depth()

        def _enter(self) -> None:
            self._before, self._depth = self._graph.session, stream_depth()
            self._on.__enter__()
            self._graph.capture_begin(pool=self._pool, capture_error_mode=self._mode)

        def _leave(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            if kind is None:
                self._graph.capture_end()
            else:
                self._graph.abort()
            self._on.__exit__(None, None, None)
            if isinstance(error, RuntimeError) and _READ_NATIVELY in str(error):
                raise CaptureError(f"{error}. Move it out of the capture.") from error

        def _recover(self) -> None:
            # Not from a capture that was there before.
            if self._graph.session is not self._before:
                self._graph.abort()
            leave_streams(self._depth)

    return CaptureBlock


def _promotes(call: Call) -> bool:
    """Whether it makes numbers of the default dtype of what has none, such as the roots of integers."""
    made = any(out.dtype.is_floating_point or out.dtype.is_complex for out in call.outs)
    given = [each.dtype for each in call.args if isinstance(each, TensorRef)]
    return made and not any(dtype.is_floating_point or dtype.is_complex for dtype in given)


class _Session:
    """A capture under way: the modes that bring every call to the recorder."""

    def __init__(self, capture_error_mode: str) -> None:
        self.capture_error_mode = capture_error_mode
        self.thread = threading.get_ident()
        self.stream = current_stream()
        self.default_dtype = torch.get_default_dtype()
        self.recorder = Recorder(keep_external=True)
        self.invalid: str | None = None
        self._modes = (_RefuseReads(self), _RecordCalls(self))
        self._before = engine().ThreadState()
        self._left = False

    def invalidate(self, why: str) -> None:
        self.invalid = self.invalid or why

    def enter(self) -> None:
        for mode in self._modes:
            mode.__enter__()
        captures.begin(self)

    def leave(self) -> None:
        if self._left:
            return
        self._left = True
        captures.end(self)
        for mode in reversed(self._modes):
            mode.__exit__(None, None, None)

    def break_off(self) -> None:
        """Leave after an exception, which may have fallen anywhere: the thread's state is as it was before."""
        self._left = True
        captures.end(self)
        self._before.restore()

    def refuse(self, rule: str) -> CaptureError:
        self.invalidate(rule)
        return CaptureError(f"{rule}. Move it out of the capture.")


class _RecordCalls(TorchDispatchMode):
    def __init__(self, session: _Session) -> None:
        super().__init__()
        self._session = session

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):
            raise self._session.refuse(f"{func} at {source_lines.of_caller()}: higher-order operators are not captured")
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        try:
            return self._session.recorder.record(func, args, kwargs, source_lines.of_caller)
        except UnsupportedGraph as error:
            raise self._session.refuse(f"cannot be captured: {error}") from error


def _name_of(recording: Recording, buffer: int) -> str:
    """A buffer in the user's terms: by the first call that uses it."""
    kind = "a tensor from outside" if recording.buffers[buffer].kind is BufferKind.EXTERNAL else "a result"
    call = next((call for call in recording.calls if buffer in call.touched()), None)
    where = f" of {call.op.name()} at {call.source}" if call is not None and call.source else ""
    return f"{kind}{where} ({recording.buffers[buffer].nbytes} bytes)"


def _leave_if_own(session: _Session) -> None:
    if session.thread == threading.get_ident():
        session.leave()


# What the engine says when memory is asked for that is not there yet, see `unallocated` in csrc/bindings.cpp.
_READ_NATIVELY = "a tensor of a graph that is being captured is read"

# Reads of a tensor's values that do not pass through an ATen operator.
_READS = {
    torch.Tensor.tolist: "tolist()",
    torch.Tensor.numpy: "numpy()",
    torch.Tensor.__array__: "numpy.asarray()",
    torch.Tensor.__dlpack__: "__dlpack__()",
    torch.Tensor.__repr__: "printing",
    torch.Tensor.__format__: "printing",
    torch.Tensor.item: "item()",
    torch.Tensor.__bool__: "bool()",
    torch.Tensor.__int__: "int()",
    torch.Tensor.__float__: "float()",
    torch.Tensor.__index__: "use as an index",
}


class _RefuseReads(TorchFunctionMode):
    def __init__(self, session: _Session) -> None:
        super().__init__()
        self._session = session

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        read = _READS.get(func)
        if read is not None and not (read == "printing" and func is torch.Tensor.__format__ and args[0].dim() > 0):
            where = source_lines.of_caller()
            raise self._session.refuse(
                f"a tensor's value is read during capture, by {read} at {where}: it has none before replay"
            )
        kwargs = kwargs or {}
        out = kwargs.get("out")
        if not isinstance(out, torch.Tensor):
            return func(*args, **kwargs)
        calls = self._session.recorder.calls_touching(out)
        result = func(*args, **kwargs)
        if out.numel() and self._session.recorder.calls_touching(out) == calls:
            # Under a dispatch mode torch.linalg.matrix_rank computes a new tensor and leaves `out=` as it was.
            name = torch.overrides.resolve_name(func)
            raise self._session.refuse(f"{name} at {source_lines.of_caller()}: it does not write its out= in a capture")
        return result
