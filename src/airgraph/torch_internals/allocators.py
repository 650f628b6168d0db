"""Ends of a device allocator's routing into a pool that its graphs do not see to themselves."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["cuda_release_pool", "cuda_stop_routing", "npu_release_pool", "npu_stop_routing"]


def cuda_stop_routing(device: torch.device, pool_handle: Any) -> None:
    torch._C._cuda_endAllocateToPool(device.index or 0, pool_handle)


def cuda_release_pool(device: torch.device, pool_handle: Any) -> None:
    torch._C._cuda_releasePool(device.index or 0, pool_handle)


def npu_stop_routing(device: torch.device, pool_handle: Any) -> None:
    import torch_npu

    torch_npu._C._npu_endAllocateToPool(device.index or 0, pool_handle)


def npu_release_pool(device: torch.device, pool_handle: Any) -> None:
    import torch_npu

    torch_npu._C._npu_releasePool(device.index or 0, pool_handle)
