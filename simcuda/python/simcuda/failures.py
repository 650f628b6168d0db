# SPDX-License-Identifier: Apache-2.0
"""Let calls of the simulated runtime fail, to see what the host does then."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator


@contextlib.contextmanager
def fail_once(call: str, *, calls_before: int = 0, status: int = 0) -> Iterator[None]:
    """Inside the with-block, `call` (such as "cudaGraphInstantiateWithFlags") fails once.

    It succeeds `calls_before` times first. `status` is the cudaError_t; 0 means what such a call usually fails with:
    out of memory for cudaMalloc, cudaHostAlloc and the instantiation of a graph, else cudaErrorUnknown. An
    AssertionError at the end of the block says that it was not called often enough to fail.
    """
    runtime = _runtime()
    runtime.simcuda_fail(call.encode(), calls_before, status)
    try:
        yield
    finally:
        left = fail_nothing()
    assert not left, f"{call} was to fail, and was not called {calls_before + 1} times"


def fail_nothing() -> int:
    """Take back every failure that was asked for; returns how many had not happened."""
    return int(_runtime().simcuda_fail_nothing())


def _runtime() -> ctypes.CDLL:
    runtime = ctypes.CDLL("libcudart.so.13")
    runtime.simcuda_fail.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int]
    return runtime
