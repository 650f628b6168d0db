"""Pools by device."""

from __future__ import annotations

import torch

from airgraph.errors import OptionError, UnsupportedGraph
from airgraph.memory.pool import MemoryPool
from airgraph.runtime.registry import runtime_for

__all__ = ["graph_pool_handle"]


def graph_pool_handle(device: str | torch.device | None = None) -> MemoryPool:
    """A new pool on a device, by default the CPU. Raises OptionError for a device that has no runtime."""
    try:
        wanted = torch.device(device if device is not None else "cpu")
        return runtime_for(wanted.type).open_pool(wanted)
    except (RuntimeError, UnsupportedGraph) as error:
        raise OptionError(f"device {device!r}: {error}") from error
