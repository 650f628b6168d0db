"""Streams and events of the CPU: the order of work, as `torch.cuda` names it.

Work on the CPU runs in the calling thread, so a stream is an order that is always kept and an event is done
as soon as it is recorded. A capture belongs to the stream that was current when it began.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from airgraph.errors import StreamError
from airgraph.runtime.cpu import captures

__all__ = ["Event", "Stream", "current_stream", "stream", "synchronize"]


class Stream:
    """A queue of work. priority: lower is more urgent; kept for the caller, without effect in eager work."""

    def __init__(self, priority: int = 0) -> None:
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise StreamError(f"priority: expected an integer, got {priority!r}")
        self.priority = priority

    def synchronize(self) -> None:
        """Wait for all work. Raises CaptureError during a capture, by its capture_error_mode."""
        captures.check_unsafe_call("Stream.synchronize()")

    def query(self) -> bool:
        captures.check_unsafe_call("Stream.query()")
        return True

    def record_event(self, event: Event | None = None) -> Event:
        event = event if event is not None else Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        self.wait_event(stream.record_event())


class Event:
    """A point in a stream's order."""

    def __init__(self) -> None:
        self._recorded = False

    def record(self, stream: Stream | None = None) -> None:
        self._recorded = True

    def wait(self, stream: Stream | None = None) -> None:
        """Later work of `stream` (the current one) runs after this event; an event never recorded is no wait."""

    def query(self) -> bool:
        captures.check_unsafe_call("Event.query()")
        return True

    def synchronize(self) -> None:
        captures.check_unsafe_call("Event.synchronize()")


class _Current(threading.local):
    def __init__(self) -> None:
        self.stack: list[Stream] = []


_DEFAULT = Stream()
_current = _Current()


def current_stream() -> Stream:
    """The stream that work of this thread belongs to."""
    return _current.stack[-1] if _current.stack else _DEFAULT


@contextmanager
def stream(stream: Stream) -> Iterator[Stream]:
    """Make `stream` current within the block."""
    if not isinstance(stream, Stream):
        raise StreamError(f"stream: expected an airgraph.cpu.Stream, got {type(stream).__name__}")
    _current.stack.append(stream)
    try:
        yield stream
    finally:
        _current.stack.pop()


def synchronize() -> None:
    """Wait for all work of the device. Raises CaptureError during a capture, by its capture_error_mode."""
    captures.check_unsafe_call("airgraph.cpu.synchronize()")
