"""A device allocator's routing into a pool, beside what its graphs see to themselves, and what libraries allocate."""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

import torch

__all__ = [
    "cuda_forget_workspaces",
    "cuda_pool_segments",
    "cuda_release_pool",
    "cuda_start_routing",
    "cuda_stop_routing",
    "npu_release_pool",
    "npu_start_routing",
    "npu_stop_routing",
]

_CLEAR_WORKSPACES = "_ZN2at4cuda30clearCublasWorkspacesForStreamEP11CUstream_st"


def cuda_start_routing(device: torch.device, pool_handle: Any) -> None:
    """Of this thread's allocations. It takes a use of the pool, which stays when the routing has ended."""
    torch._C._cuda_beginAllocateCurrentThreadToPool(device.index or 0, pool_handle)


def cuda_stop_routing(device: torch.device, pool_handle: Any) -> None:
    torch._C._cuda_endAllocateToPool(device.index or 0, pool_handle)


def cuda_pool_segments(pool_handle: Any) -> list[dict[str, Any]]:
    """What the allocator holds for a pool, without the history of its blocks."""
    if _snapshots_lose_references():
        for each in (pool_handle[0], pool_handle[1], False):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
    segments: list[dict[str, Any]] = torch.cuda.memory_snapshot(pool_handle, include_traces=False)
    return segments


@functools.cache
def _snapshots_lose_references() -> bool:
    """Whether a snapshot takes a reference too many from each argument, which in the end frees numbers that everybody
    uses (2.13)."""
    # Numbers that nobody else holds, given one reference more than they need.
    ours = [int("1000000007"), int("1000000009")]
    for each in ours:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
    before = sys.getrefcount(ours[0])
    torch.cuda.memory_snapshot(tuple(ours), include_traces=False)
    return sys.getrefcount(ours[0]) < before


def cuda_release_pool(device: torch.device, pool_handle: Any) -> None:
    torch._C._cuda_releasePool(device.index or 0, pool_handle)


def cuda_forget_workspaces(stream: Any) -> None:
    """Give back what cuBLAS works in on this stream; the next product takes it anew. Of all streams, where torch has no
    name for those of one."""
    clear = _clear_workspaces()
    if clear is None:
        torch._C._cuda_clearCublasWorkspaces()
    else:
        clear(stream.cuda_stream)


@functools.cache
def _clear_workspaces() -> Any:
    # Without a binding in Python: looked up in the library that is loaded already.
    try:
        clear = getattr(ctypes.CDLL("libtorch_cuda.so"), _CLEAR_WORKSPACES)
    except (OSError, AttributeError):
        return None
    clear.argtypes, clear.restype = [ctypes.c_void_p], None
    return clear


def npu_start_routing(device: torch.device, pool_handle: Any) -> None:
    """As `cuda_start_routing`."""
    import torch_npu

    torch_npu._C._npu_beginAllocateCurrentThreadToPool(device.index or 0, pool_handle)


def npu_stop_routing(device: torch.device, pool_handle: Any) -> None:
    import torch_npu

    torch_npu._C._npu_endAllocateToPool(device.index or 0, pool_handle)


def npu_release_pool(device: torch.device, pool_handle: Any) -> None:
    import torch_npu

    torch_npu._C._npu_releasePool(device.index or 0, pool_handle)
