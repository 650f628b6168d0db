"""The process's output streams where they are closed, full, or nobody reads them any more."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import Any

__all__ = ["complain", "lost_output", "must_have_arrived", "open_streams"]


class _Descriptor(io.FileIO):
    """A file descriptor that remembers what went wrong first, whoever has handled it since."""

    lost: OSError | None = None
    # It stands for a stream that the process was started without.
    is_nowhere = False

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.lost = self.lost or error
            raise


def open_streams() -> None:
    """Let `lost_output` know of what is written from now on. Streams that somebody put in their place stay.

    Of a stream that the process was started without, Python makes None. Then reading finds the end at once, errors go
    nowhere, and writing fails as it does for any program. The lowest free descriptor is taken, which is the stream's
    own, so that no file is opened under its number.
    """
    if sys.stdin is None:
        sys.stdin = _text(os.open(os.devnull, os.O_RDONLY), "r")
    if sys.stdout is sys.__stdout__:
        # Not to be written to, so that it fails.
        descriptor = os.open(os.devnull, os.O_RDONLY) if sys.stdout is None else sys.stdout.fileno()
        sys.stdout = _text(descriptor, "w", sys.stdout)
    if sys.stderr is sys.__stderr__:
        is_nowhere = sys.stderr is None
        descriptor = os.open(os.devnull, os.O_WRONLY) if sys.stderr is None else sys.stderr.fileno()
        stream = _text(descriptor, "w", sys.stderr)
        stream.buffer.raw.is_nowhere = is_nowhere
        sys.stderr = stream


def complain(message: str) -> None:
    """Write a line to standard error, if anything can be written there."""
    try:
        print(message, file=sys.stderr, flush=True)
    except OSError:
        _drop_the_rest(sys.stderr)


def must_have_arrived(stream: Any) -> None:
    """What was written to it was a result: `lost_output` finds it lost where errors go nowhere."""
    descriptor = _descriptor_of(stream)
    if descriptor is not None and descriptor.is_nowhere:
        descriptor.lost = descriptor.lost or OSError(errno.EBADF, os.strerror(errno.EBADF))


def lost_output() -> str | None:
    """Why what was written has not arrived; None if it has, "" if the reader left, as that of `| head` does.

    The rest is dropped, so that the interpreter does not try once more and complain.
    """
    lost = None
    for name, stream in (("standard error", sys.stderr), ("standard output", sys.stdout)):
        with contextlib.suppress(OSError):
            stream.flush()
        descriptor = _descriptor_of(stream)
        error = descriptor.lost if descriptor is not None else None
        if error is not None:
            lost = "" if error.errno == errno.EPIPE else f"cannot write to {name}: {error.strerror}"
            _drop_the_rest(stream)
    return lost


def _descriptor_of(stream: Any) -> _Descriptor | None:
    """None for a stream that somebody has put in the place of ours."""
    descriptor = getattr(getattr(stream, "buffer", None), "raw", None)
    return descriptor if isinstance(descriptor, _Descriptor) else None


def _text(descriptor: int, mode: str, like: Any = None) -> Any:
    raw = _Descriptor(descriptor, mode, closefd=False)
    buffer: Any = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    # A terminal in an ASCII locale must not turn a generated "é" into a crash.
    lines = bool(getattr(like, "line_buffering", False))
    return io.TextIOWrapper(buffer, getattr(like, "encoding", None), errors="replace", line_buffering=lines)


def _drop_the_rest(stream: Any) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
    stream.flush()
