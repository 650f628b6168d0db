"""Memory of an accelerator's allocator that the graphs of a pool share."""

from __future__ import annotations

import weakref
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
        self._is_entered = False
        self._captured: list[weakref.ref[Any]] = []

    def enter(self) -> Any:
        """Call before a capture: afterwards `handle` is a pool that the allocator lets a graph into.

        Returns what keeps it so, for as long as that is held: one of the graphs in it. The allocator lets no graph
        into a pool that its last graph has left, nor into one whose first capture failed, so that is replaced.
        """
        self._captured = [each for each in self._captured if each() is not None]
        keeper = next((graph for each in self._captured if (graph := each()) is not None), None)
        if keeper is None and self._is_entered:
            self._handle = None
        self._is_entered = True
        return keeper

    def add_graph(self, graph: Any) -> None:
        """It was captured into this pool."""
        self._captured.append(weakref.ref(graph))

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
            self._handle = None
