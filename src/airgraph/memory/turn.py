"""One replay at a time among graphs that share memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from airgraph.errors import ReplayError

__all__ = ["Turn"]


class Turn:
    """The right to run graphs of one pool: one thread has it at a time, and no graph runs within another's replay.

    Where a microsecond counts, `lock` and `owner` are used directly.
    """

    __slots__ = ("lock", "owner")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owner: int | None = None

    @contextmanager
    def taken(self, what: str) -> Iterator[None]:
        """Have the turn within the block, after a wait for other threads. Raises ReplayError if this one has it."""
        me = threading.get_ident()
        if self.owner == me:
            raise self.refusal(what)
        with self.lock:
            self.owner = me
            try:
                yield
            finally:
                self.owner = None

    @staticmethod
    def refusal(what: str) -> ReplayError:
        return ReplayError(
            f"{what} was called by an operator of a graph that is running, in the same memory pool: a graph cannot run "
            "inside itself or its neighbours. Call the uncompiled function there, or use another pool."
        )
