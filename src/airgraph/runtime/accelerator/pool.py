"""Memory of an accelerator's allocator that the graphs of a pool share."""

from __future__ import annotations

from typing import Any

import torch

from airgraph.memory.footprint import Footprint
from airgraph.memory.pool import MemoryPool
from airgraph.runtime.engine.loading import engine

__all__ = ["DevicePool"]


class DevicePool(MemoryPool):
    """A private pool of the device's caching allocator; it holds memory as long as a graph in it lives.

    module: torch.cuda, or what has its names. handle: as the device's own graphs take it.
    """

    def __init__(self, device: torch.device, module: Any, handle: Any) -> None:
        super().__init__(device, engine().ReplayLock())
        self._module = module
        self._handle = handle

    @property
    def handle(self) -> Any:
        if self._handle is None:
            self._handle = self._module.graph_pool_handle()
        return self._handle

    @property
    def footprint(self) -> Footprint:
        """The arena is the segments that the allocator keeps for this pool, outputs included."""
        own = tuple(self._handle or ())
        segments = self._module.memory_snapshot() if own else ()
        held = sum(s["total_size"] for s in segments if tuple(s.get("segment_pool_id", ())) == own)
        return Footprint(held, self.inputs.nbytes)

    def nbytes_with(self, footprint: Footprint) -> int:
        held = self.footprint
        grown = [
            new if position >= len(self.inputs.block_nbytes) or new > self.inputs.block_nbytes[position] else 0
            for position, new in enumerate(footprint.inputs_nbytes)
        ]
        return max(held.arena_nbytes, footprint.arena_nbytes) + sum(held.inputs_nbytes) + sum(grown)

    def give_back(self) -> None:
        self._module.empty_cache()

    def _let_go(self) -> None:
        super()._let_go()
        if not self._live():
            # The allocator lets no graph into a pool that its last graph has left.
            self._handle = None
