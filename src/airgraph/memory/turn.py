"""One replay at a time among graphs that share memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from airgraph.errors import ReplayError

__all__ = ["Turn"]


class Turn:
    """The right to run graphs of one pool: one thread has it at a time, and no graph runs within another's replay.

    Where a microsecond counts, `lock` and `owner` are used directly, and `wait` where the lock is taken.
    """

    __slots__ = ("lock", "owner")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owner: int | None = None

    @contextmanager
    def taken(self, what: str) -> Iterator[None]:
        """Have the turn within the block, after a wait for other threads.

        Raises ReplayError if this thread has it already, or if the wait would never end.
        """
        me = threading.get_ident()
        if self.owner == me:
            raise self.refusal(what)
        if not self.lock.acquire(blocking=False):
            self.wait(me, what)
        self.owner = me
        try:
            yield
        finally:
            self.owner = None
            self.lock.release()

    def wait(self, me: int, what: str) -> None:
        """Acquire the lock, which another thread has. Raises ReplayError if that one waits for this thread."""
        with _waiting_lock:
            turn: Turn | None = self
            while turn is not None and turn.owner is not None:
                if turn.owner == me:
                    raise ReplayError(
                        f"{what} would wait for ever: it was called within a replay, for whose pool the thread waits "
                        "that it would wait for. Call graphs of two pools from one another in one order only."
                    )
                turn = _waiting.get(turn.owner)
            _waiting[me] = self
        try:
            self.lock.acquire()
        finally:
            with _waiting_lock:
                del _waiting[me]

    @staticmethod
    def refusal(what: str) -> ReplayError:
        return ReplayError(
            f"{what} was called by an operator of a graph that is running, in the same memory pool: a graph cannot run "
            "inside itself or its neighbours. Call the uncompiled function there, or use another pool."
        )


# Which thread waits for which turn, to tell a wait that would never end.
_waiting: dict[int, Turn] = {}
_waiting_lock = threading.Lock()
