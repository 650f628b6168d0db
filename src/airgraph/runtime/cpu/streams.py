"""Streams and events of the CPU: the order of work, as `torch.cuda` names it.

Eager work on the CPU runs in the calling thread, so its order is always kept and an event is done as soon as it is
recorded. A capture belongs to the stream that was current when it began. Other streams become part of it when they wait
for an event that is recorded in it, and its replays run them beside one another.
"""

from __future__ import annotations

import functools
import threading
import time
from contextlib import AbstractContextManager
from typing import Any

from airgraph.arguments import shown
from airgraph.errors import StreamError
from airgraph.program.stream_marks import check_priority, current_scope, scope_depth
from airgraph.runtime.cpu import captures
from airgraph.runtime.engine.loading import engine

__all__ = ["Event", "Stream", "current_stream", "default_stream", "stream", "synchronize"]


class Stream:
    """A queue of work. priority: lower is more urgent; kept for the caller, without effect in eager work.

    Raises StreamError for a priority that is no integer of 32 bits.
    """

    def __init__(self, priority: int = 0) -> None:
        check_priority(priority)
        self.priority = priority

    def synchronize(self) -> None:
        """Wait for all work. Raises CaptureError during a capture, by its capture_error_mode."""
        captures.check_unsafe_call("Stream.synchronize()")

    def query(self) -> bool:
        """Whether all work is done, which on CPU it is. Raises CaptureError as `synchronize` does."""
        captures.check_unsafe_call("Stream.query()")
        return True

    def record_event(self, event: Event | None = None) -> Event:
        """Mark what this stream has been given so far, in an event or a new one, which is returned.

        Raises StreamError for what is no event of the CPU.
        """
        event = event if event is not None else Event()
        _expect("record_event", event, Event)
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Later work of this stream runs after an event. Raises StreamError for what is no event of the CPU."""
        _expect("wait_event", event, Event)
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Later work of this stream runs after what another has been given so far.

        Raises StreamError for what is no stream of the CPU.
        """
        _expect("wait_stream", stream, Stream)
        self.wait_event(stream.record_event())


class Event:
    """A point in a stream's order. enable_timing: it knows when it was recorded. blocking: without effect on CPU.

    Raises StreamError for events of several processes, and for what is neither True nor False.
    """

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        given = {"enable_timing": enable_timing, "blocking": blocking, "interprocess": interprocess}
        for name, value in given.items():
            if not isinstance(value, bool):
                hint = " Events with a tag are airgraph.Event's." if isinstance(value, str) else ""
                raise StreamError(f"{name}: expected True or False, got {shown(value)}.{hint}")
        if interprocess:
            raise StreamError("interprocess: expected False, got True: events of the CPU belong to one process")
        self.is_timed = enable_timing
        self.recorded_s: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Mark what `stream` (the current one) has been given so far."""
        _expect("record", stream, Stream, or_none=True)
        capture = captures.current()
        if capture is not None:
            capture.streams.record(self, stream, current_place())
        elif self.is_timed:
            # Work outside of captures is done when a call returns.
            self.recorded_s = time.perf_counter()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another.

        Raises StreamError for what is no event of the CPU, and where one of the two is not timed, or was not recorded
        outside of a capture.
        """
        _expect("elapsed_time", end_event, Event)
        for event in (self, end_event):
            if not event.is_timed:
                raise StreamError("elapsed_time: expected two events made with enable_timing=True")
        if self.recorded_s is None or end_event.recorded_s is None:
            raise StreamError("elapsed_time: expected two events that were recorded, outside of a capture")
        return (end_event.recorded_s - self.recorded_s) * 1e3

    def wait(self, stream: Stream | None = None) -> None:
        """Later work of `stream` (the current one) runs after this event; an event never recorded is no wait."""
        _expect("wait", stream, Stream, or_none=True)
        capture = captures.current()
        if capture is not None:
            capture.streams.wait(self, stream, current_place())

    def query(self) -> bool:
        """Whether it is done, which on CPU it is. Raises CaptureError during a capture, by its capture_error_mode."""
        captures.check_unsafe_call("Event.query()")
        return True

    def synchronize(self) -> None:
        """Wait until it is done. Raises CaptureError during a capture, by its capture_error_mode."""
        captures.check_unsafe_call("Event.synchronize()")


def _expect(name: str, given: object, kind: type, *, or_none: bool = False) -> None:
    if not isinstance(given, kind) and not (or_none and given is None):
        expected = f"an airgraph.cpu.{kind.__name__}{' or None' if or_none else ''}"
        raise StreamError(f"{name}: expected {expected}, got {type(given).__name__}")


class _Current(threading.local):
    def __init__(self) -> None:
        # With how many scopes of tags are around each.
        self.stack: list[tuple[Stream, int]] = []


_DEFAULT = Stream()
_current = _Current()


def current_stream() -> Stream:
    """The stream that work of this thread belongs to."""
    return _current.stack[-1][0] if _current.stack else _DEFAULT


def default_stream() -> Stream:
    """What is current outside of all blocks."""
    return _DEFAULT


def current_place() -> Stream | str:
    """What the innermost block of this thread names: a stream, or the tag of one."""
    tag = current_scope()
    is_innermost = not _current.stack or scope_depth() > _current.stack[-1][1]
    return current_stream() if tag is None or not is_innermost else tag


def stream(stream: Stream) -> AbstractContextManager[Stream]:
    """Make `stream` current within the block."""
    _expect("stream", stream, Stream)
    made: AbstractContextManager[Stream] = _block_class()(stream)
    return made


def stream_depth() -> int:
    """How many blocks of `stream` this thread is in."""
    return len(_current.stack)


def leave_streams(depth: int) -> None:
    """Leave all blocks of `stream` but the outermost `depth`; what was left already stays so."""
    del _current.stack[depth:]


@functools.cache
def _block_class() -> Any:
    # Made at first use: the engine may have to be compiled.
    class StreamBlock(engine().Block):  # type: ignore[misc]
        def __init__(self, stream: Stream) -> None:
            super().__init__()
            self._stream, self._depth = stream, stream_depth()

        def _enter(self) -> Stream:
            self._depth = stream_depth()
            _current.stack.append((self._stream, scope_depth()))
            return self._stream

        def _leave(self, *raised: object) -> None:
            leave_streams(self._depth)

        def _recover(self) -> None:
            leave_streams(self._depth)

    return StreamBlock


def synchronize() -> None:
    """Wait for all work of the device. Raises CaptureError during a capture, by its capture_error_mode."""
    captures.check_unsafe_call("airgraph.cpu.synchronize()")
