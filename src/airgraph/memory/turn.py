"""One replay at a time among graphs that share memory, in Python; `csrc/engine/turn.h` is the native engine's.

Every taking is by `with` over a lock of the interpreter's own, so that no exception of a signal handler can fall
between the taking and what gives it back.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from airgraph.errors import ReplayError

__all__ = ["Turn"]


class Turn:
    """The right to run graphs of one pool: one thread has it at a time, and no graph runs within another's replay."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None
        _all.add(self)

    @contextmanager
    def having(self, what: str) -> Iterator[bool]:
        """Have the turn within the block, after a wait for other threads.

        Raises ReplayError if this thread has it already, or if the wait would never end.
        """
        me = threading.get_ident()
        if self._owner == me:
            raise ReplayError(
                f"{what} was called by an operator of a graph that is running, in the same memory pool: a graph cannot "
                "run inside itself or its neighbours. Call the uncompiled function there, or use another pool."
            )
        self._check_wait(me, what)
        try:
            _waiting[me] = self
            with self._lock:
                _waiting.pop(me, None)
                try:
                    self._owner = me
                    yield True
                finally:
                    self._owner = None
        finally:
            _waiting.pop(me, None)

    @contextmanager
    def if_free(self) -> Iterator[bool]:
        """Have the turn within the block if nobody has it; the value says whether."""
        if self._owner is not None:
            yield False
            return
        with self.having("") as mine:
            yield mine

    def _check_wait(self, me: int, what: str) -> None:
        turn: Turn | None = self
        while turn is not None and turn._owner is not None:
            if turn._owner == me:
                raise ReplayError(
                    f"{what} would wait for ever: it was called within a replay, for whose pool the thread waits that "
                    "it would wait for. Call graphs of two pools from one another in one order only."
                )
            turn = _waiting.get(turn._owner)

    def _renew(self) -> None:
        if self._owner != threading.get_ident():
            self._lock = threading.Lock()
            self._owner = None


# Which thread waits for which turn, to tell a wait that would never end.
_waiting: dict[int, Turn] = {}
_all: weakref.WeakSet[Turn] = weakref.WeakSet()


def _renew_all() -> None:
    _waiting.clear()
    for turn in list(_all):
        turn._renew()


# Threads that had a turn do not exist in the child.
os.register_at_fork(after_in_child=_renew_all)
