"""One replay at a time among graphs that share memory, in Python; `csrc/engine/replay_lock.h` is the native engine's.

An exception of a signal handler may fall between the taking and what gives it back; then the exception keeps what is
half done alive. So the frame that takes a lock is remembered with it; a lock whose frame does not run any more is free.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from types import FrameType

from airgraph.errors import ReplayError

__all__ = ["ReplayLock"]


_LOOK_AGAIN_S = 0.0005


class ReplayLock:
    """The right to run graphs of one pool: one thread has it at a time, and no graph runs within another's replay."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The thread that has it, and the frame in which it took it.
        self._holder: tuple[int, FrameType] | None = None
        _all.add(self)

    def holding(self, what: str) -> _Holding:
        """Hold the replay lock within the block, after a wait for other threads.

        Raises ReplayError if this thread has it already, or if the wait would never end.
        """
        return _Holding(self, what, waits=True)

    def if_free(self) -> _Holding:
        """Hold the replay lock within the block if nobody holds it; the value says whether."""
        return _Holding(self, "", waits=False)

    @property
    def _owner(self) -> int | None:
        holder = self._holder
        return holder[0] if holder is not None and _runs(*holder) else None

    def _take(self, what: str, frame: FrameType) -> None:
        me = threading.get_ident()
        if self._owner == me:
            raise ReplayError(
                f"{what} was called by an operator of a graph that is running, in the same memory pool: a graph cannot "
                "run inside itself or its neighbours. Call the uncompiled function there, or use another pool."
            )
        self._check_wait(me, what)
        try:
            _waiting[me] = self
            while not self._take_if_free(me, frame):
                # Nobody tells when a frame has ended by an exception.
                time.sleep(_LOOK_AGAIN_S)
        finally:
            _waiting.pop(me, None)

    def _take_if_free(self, me: int, frame: FrameType) -> bool:
        with self._lock:
            if self._owner is None:
                self._holder = (me, frame)
                return True
        return False

    def _give_back(self, frame: FrameType) -> None:
        with self._lock:
            if self._holder is not None and self._holder[1] is frame:
                self._holder = None

    def _check_wait(self, me: int, what: str) -> None:
        replay_lock: ReplayLock | None = self
        while replay_lock is not None:
            owner = replay_lock._owner
            if owner is None:
                return
            if owner == me:
                raise ReplayError(
                    f"{what} would wait for ever: it was called within a replay, for whose pool the thread waits that "
                    "it would wait for. Call graphs of two pools from one another in one order only."
                )
            replay_lock = _waiting.get(owner)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        if self._owner != threading.get_ident():
            self._holder = None


class _Holding:
    """The block of `ReplayLock.holding` or `ReplayLock.if_free`."""

    def __init__(self, replay_lock: ReplayLock, what: str, *, waits: bool) -> None:
        self._replay_lock, self._what, self._waits = replay_lock, what, waits
        self._frame: FrameType | None = None

    def __enter__(self) -> bool:
        if not self._waits and self._replay_lock._owner is not None:
            return False
        self._frame = sys._getframe(1)
        self._replay_lock._take(self._what, self._frame)
        return True

    def __exit__(self, *raised: object) -> None:
        frame, self._frame = self._frame, None
        if frame is not None:
            self._replay_lock._give_back(frame)


def _runs(thread: int, frame: FrameType) -> bool:
    """Whether a thread is in a frame, or in what that has called."""
    current = sys._current_frames().get(thread)
    while current is not None and current is not frame:
        current = current.f_back
    return current is not None


# Which thread waits for which replay lock, to tell a wait that would never end.
_waiting: dict[int, ReplayLock] = {}
_all: weakref.WeakSet[ReplayLock] = weakref.WeakSet()


def _renew_all() -> None:
    _waiting.clear()
    for replay_lock in list(_all):
        replay_lock._renew()


# Threads that held one do not exist in the child.
os.register_at_fork(after_in_child=_renew_all)
