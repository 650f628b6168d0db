"""Threads whose calls are looked at before they are served as usual."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["careful", "careful_threads", "is_recording", "recording"]

# While there are any, no call of whatever thread takes the short way.
careful_threads: set[int] = set()

_recording_threads: set[int] = set()


@contextmanager
def careful() -> Iterator[None]:
    """The calling thread is one of them."""
    with _within(careful_threads):
        yield


@contextmanager
def recording() -> Iterator[None]:
    """The calling thread runs operators for a capture of a device, or captures them. Compiled functions that these call
    run eagerly."""
    with _within(careful_threads), _within(_recording_threads):
        yield


def is_recording() -> bool:
    """Whether the calling thread is within `recording`."""
    return bool(_recording_threads) and threading.get_ident() in _recording_threads


@contextmanager
def _within(threads: set[int]) -> Iterator[None]:
    me = threading.get_ident()
    if me in threads:
        yield
        return
    try:
        threads.add(me)
        yield
    finally:
        threads.discard(me)
