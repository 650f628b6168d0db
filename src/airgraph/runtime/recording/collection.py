"""Captures without the garbage collector between."""

from __future__ import annotations

import functools
import gc
from contextlib import AbstractContextManager
from typing import Any

from airgraph.runtime.engine.loading import engine

__all__ = ["uncollected"]


def uncollected() -> AbstractContextManager[Any]:
    """A block in which no garbage is collected: a capture makes none, and what is freed a device may not allow.

    However it is left, at whatever point, garbage is collected afterwards as it was before.
    """
    block: AbstractContextManager[Any] = _block_class()()
    return block


@functools.cache
def _block_class() -> Any:
    # Made at first use: the engine may have to be compiled.
    class Uncollected(engine().Block):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self._collects = gc.isenabled()

        def _enter(self) -> None:
            gc.disable()

        def _leave(self, *raised: object) -> None:
            self._recover()

        def _recover(self) -> None:
            if self._collects:
                gc.enable()

    return Uncollected
