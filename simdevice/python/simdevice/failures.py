# SPDX-License-Identifier: Apache-2.0
"""Let calls of a simulated runtime fail, to see what the host does then."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

__all__ = ["Failures"]


@dataclass
class Failures:
    """Those of a runtime: `library` is the name that it was loaded by, `prefix` that of its functions."""

    library: str
    prefix: str

    @contextlib.contextmanager
    def fail_once(self, call: str, *, calls_before: int = 0, status: int = 0) -> Iterator[None]:
        """Inside the with-block, `call` (such as "cudaGraphInstantiateWithFlags") fails once.

        It succeeds `calls_before` times first. `status` is the runtime's error code; 0 means what such a call usually
        fails with: out of memory where it allocates, else an unknown or internal error. An AssertionError at the end of
        the block says that it was not called often enough to fail.
        """
        self._runtime[f"{self.prefix}_fail"](call.encode(), ctypes.c_long(calls_before), ctypes.c_int(status))
        try:
            yield
        finally:
            left = self.fail_nothing()
        assert not left, f"{call} was to fail, and was not called {calls_before + 1} times"

    def fail_nothing(self) -> int:
        """Take back every failure that was asked for; returns how many had not happened."""
        return int(self._runtime[f"{self.prefix}_fail_nothing"]())

    @cached_property
    def _runtime(self) -> ctypes.CDLL:
        return ctypes.CDLL(self.library)
