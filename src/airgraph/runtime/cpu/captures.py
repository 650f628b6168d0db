"""Which captures by hand are under way in the process, and which calls they forbid."""

from __future__ import annotations

import os
import sys
import threading
from typing import Protocol

from airgraph.errors import CaptureError
from airgraph.memory.locks import renew_after_fork
from airgraph.runtime.cpu.capture_streams import CaptureStreams

__all__ = ["CAPTURE_ERROR_MODES", "Capture", "begin", "check_unsafe_call", "current", "end"]

CAPTURE_ERROR_MODES = ("global", "thread_local", "relaxed")


class Capture(Protocol):
    capture_error_mode: str
    thread: int
    streams: CaptureStreams

    def invalidate(self, why: str) -> None: ...


class _Captured(Protocol):
    @property
    def session(self) -> Capture | None: ...


_lock = threading.RLock()
renew_after_fork(sys.modules[__name__], "_lock")
_underway: dict[int, Capture] = {}


def _forget_those_of_other_threads() -> None:
    for thread in list(_underway):
        if thread != threading.get_ident():
            del _underway[thread]


# Threads that were capturing do not exist in the child.
os.register_at_fork(after_in_child=_forget_those_of_other_threads)


def current() -> Capture | None:
    """The capture of this thread."""
    return _underway.get(threading.get_ident())


def begin(capture: Capture) -> None:
    with _lock:
        _underway[capture.thread] = capture


def end(capture: Capture) -> None:
    with _lock:
        _underway.pop(capture.thread, None)


def check_unsafe_call(call: str, *, captured: _Captured | None = None) -> None:
    """Raise CaptureError if a capture forbids this call, which also invalidates that capture.

    "global" forbids it in every thread, "thread_local" in the capturing one, "relaxed" nowhere.
    captured: what the call would replay. One that is captured anew itself has nothing to replay: its capture goes on.
    """
    if not _underway:
        return
    with _lock:
        captures = list(_underway.values())
    for capture in captures:
        own = capture.thread == threading.get_ident()
        if captured is not None and captured.session is capture:
            raise CaptureError("replay before capture_end: this graph holds no capture.")
        if capture.capture_error_mode == "global" or (own and capture.capture_error_mode == "thread_local"):
            where = "this thread" if own else "another thread"
            rule = f"{call} is not allowed while a graph is captured in {where} (mode {capture.capture_error_mode!r})"
            capture.invalidate(rule)
            raise CaptureError(f"{rule}. Call it before capture_begin or after capture_end.")
