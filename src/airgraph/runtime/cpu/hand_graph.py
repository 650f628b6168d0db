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

from airgraph.errors import CaptureError, ReplayError, UnsupportedGraph
from airgraph.memory.footprint import Footprint
from airgraph.memory.pool import ArenaPool
from airgraph.options import Options
from airgraph.runtime.cpu import captures
from airgraph.runtime.cpu.assemble import Assembled, assemble, plan_arena
from airgraph.runtime.cpu.graph import replay_error
from airgraph.runtime.cpu.races import without_races
from airgraph.runtime.cpu.session import READ_NATIVELY, Session
from airgraph.runtime.cpu.streams import Stream, current_stream, leave_streams, stream_depth
from airgraph.runtime.cpu.streams import stream as use_stream
from airgraph.runtime.cpu.tape import BufferKind, Call, Recording, TensorRef
from airgraph.runtime.engine.loading import engine
from airgraph.runtime.problem import ProblemKind
from airgraph.torch_internals.storages import storage_of
from airgraph.torch_internals.untraced import untraced

__all__ = ["CPUGraph", "graph", "graph_pool_handle"]


def graph_pool_handle() -> ArenaPool:
    """A new pool that graphs can be captured into."""
    return ArenaPool(engine().ReplayLock())


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
    """A recorded sequence of ATen calls. Replays in one pool are serialised, from whatever thread.

    kernels: as the option of that name. Raises OptionError for a value that it does not have.
    """

    def __init__(self, *, kernels: str = "fast") -> None:
        self._exact = Options(kernels=kernels).kernels == "exact"
        self._state = _State.EMPTY
        self._session: Session | None = None
        self._pool: ArenaPool | None = None
        self._recording: Recording | None = None
        self._assembled: Assembled | None = None
        self._hand: Any = None
        self._memory: list[_Memory] = []
        self._written: list[Any] = []
        # That it was captured under, if something depends on it.
        self._default_dtype: torch.dtype | None = None
        self._abandoned: weakref.finalize[Any, Any] | None = None

    def capture_begin(self, pool: ArenaPool | None = None, capture_error_mode: str = "global") -> None:
        """Start recording this thread's ATen calls on the current stream.

        pool: from `graph_pool_handle()` or another graph's `pool()`. capture_error_mode: as for torch.cuda.
        Raises CaptureError if this graph is capturing or has captured, this thread captures already, or the pool is
        closed.
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
        if pool is not None and pool.closed:
            raise CaptureError(f"pool: {pool!r} is closed. Open another by graph_pool_handle().")
        if capture_error_mode not in captures.CAPTURE_ERROR_MODES:
            allowed = ", ".join(map(repr, captures.CAPTURE_ERROR_MODES))
            raise CaptureError(f"capture_error_mode: expected one of {allowed}, got {capture_error_mode!r}.")
        self._pool = pool if pool is not None else graph_pool_handle()
        self._session = session = Session(capture_error_mode)
        try:
            session.enter()
            self._state = _State.CAPTURING
        except BaseException as error:
            session.break_off(error)
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
        if session.invalid is None:
            session.streams.check_joined()
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
        captures.check_unsafe_call("CPUGraph.replay()", captured=self)
        if self._default_dtype not in (None, torch.get_default_dtype()):
            raise ReplayError(
                f"the graph computes with integers and was captured under the default dtype {self._default_dtype}, now "
                f"{torch.get_default_dtype()}. Set that one again, or capture again."
            )
        try:
            problem = hand.replay()
            while problem is not None:
                kind, index = problem
                if kind is ProblemKind.LOST:
                    raise ReplayError(
                        f"{self._memory[index].name}: its memory was freed, resized or replaced since the "
                        "capture. Keep it as it was, or capture again."
                    )
                # Kernels are chosen by settings of torch, which have changed.
                with self.pool().replay_lock.holding("replay of a CPUGraph"):
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
        with self._pool.replay_lock.holding("reset of a CPUGraph"):
            self._state = _State.EMPTY
            self._recording = self._assembled = self._hand = None
            self._memory, self._written = [], []

    def pool(self) -> ArenaPool:
        """The pool that this graph was captured into. Raises CaptureError before capture_begin."""
        if self._pool is None:
            raise CaptureError("pool before capture_begin: this graph has no pool.")
        return self._pool

    @property
    def session(self) -> Any:
        """The capture under way, or None."""
        return self._session

    def abort(self, raised: BaseException | None = None) -> None:
        """Drop a capture under way; nothing happens if there is none."""
        session = self._session
        if session is not None:
            session.break_off(raised)
            self._close(session)

    def _close(self, session: Session) -> None:
        if self._abandoned is not None:
            self._abandoned.detach()
        session.leave()
        self._session = None
        self._state = _State.EMPTY

    def _finish(self, session: Session) -> None:
        recording = without_races(session.recorder.finish())
        self._default_dtype = session.default_dtype if any(map(_promotes, recording.calls)) else None
        memory: list[_Memory] = []
        for index, buffer in enumerate(recording.buffers):
            # Results that the caller holds, and tensors from outside.
            if buffer.kind is BufferKind.MADE and buffer.storage.expired():
                continue
            storage = storage_of(buffer.storage)
            if storage is None:
                continue
            whole = engine().whole(storage)
            if buffer.kind is BufferKind.MADE:
                engine().allocate(whole)
            memory.append(_Memory(index, whole, _name_of(recording, index)))
        self._recording, self._memory = recording, memory
        written = session.recorder.written
        self._written = [count for each in memory for count in written.get(each.buffer, ())]
        with self.pool().replay_lock.holding("capture_end of a CPUGraph"):
            self._assemble()
        self._state = _State.CAPTURED

    def _assemble(self) -> None:
        """Make the tape, for torch's settings as they are now. Under the pool's replay lock."""
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
        self._assembled = assemble(recording, arena, placed, lease, exact=self._exact)
        self._hand = engine().HandGraph(self._assembled.tape, self.pool().replay_lock)
        for each in self._memory:
            self._hand.add_memory(each.whole)
        for count in self._written:
            self._hand.add_written(count)


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
                self._graph.abort(error)
            self._on.__exit__(None, None, None)
            if isinstance(error, RuntimeError) and READ_NATIVELY in str(error):
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


def _name_of(recording: Recording, buffer: int) -> str:
    """A buffer in the user's terms: by the first call that uses it."""
    kind = "a tensor from outside" if recording.buffers[buffer].kind is BufferKind.EXTERNAL else "a result"
    call = next((call for call in recording.calls if buffer in call.touched()), None)
    where = f" of {call.op.name()} at {call.source}" if call is not None and call.source else ""
    return f"{kind}{where} ({recording.buffers[buffer].nbytes} bytes)"


@untraced
def _leave_if_own(session: Session) -> None:
    if session.thread == threading.get_ident():
        session.leave()
