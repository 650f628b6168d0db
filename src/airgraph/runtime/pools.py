"""Pools by device."""

from __future__ import annotations

import torch

from airgraph.errors import OptionError, UnsupportedGraph
from airgraph.memory.pool import MemoryPool
from airgraph.runtime.registry import runtime_for

__all__ = ["graph_pool_handle"]


def graph_pool_handle(device: str | torch.device | None = None) -> MemoryPool:
    """A new pool on a device, by default the CPU. Raises OptionError for a device that has no runtime."""
    device_type = torch.device(device).type if device is not None else "cpu"
    try:
        return runtime_for(device_type).open_pool()
    except UnsupportedGraph as error:
        raise OptionError(f"device {device!r}: {error}") from error
