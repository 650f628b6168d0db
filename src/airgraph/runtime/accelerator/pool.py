"""Memory of an accelerator's allocator that the graphs of a pool share."""

from __future__ import annotations

import functools
import weakref
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from airgraph.memory.footprint import Footprint
from airgraph.memory.pool import MemoryPool
from airgraph.runtime.engine.loading import engine
from airgraph.torch_internals.untraced import untraced

__all__ = ["DevicePool", "PoolRouting"]


class PoolRouting(Protocol):
    """What a pool asks of its device's allocator."""

    @property
    def module(self) -> Any:
        """torch.cuda, or what has its names."""
        ...

    def start_routing(self, device: torch.device, pool_handle: Any) -> None:
        """From now on what this thread allocates comes from the pool. Takes a use of it."""
        ...

    def stop_routing(self, device: torch.device, pool_handle: Any) -> None:
        """End that, or what a failed capture has left; else a RuntimeError."""
        ...

    def release_pool(self, device: torch.device, pool_handle: Any) -> None:
        """Take back one use of a pool."""
        ...

    def pool_segments(self, pool_handle: Any) -> list[dict[str, Any]]:
        """What the allocator holds for a pool."""
        ...


@dataclass(frozen=True, slots=True)
class Held:
    """arena_nbytes: of segments. blocks: addresses of those that somebody holds, in them."""

    arena_nbytes: int
    blocks: frozenset[int]


class _Use:
    """One use of a pool of the allocators of device and host: while it lasts, they keep it and let graphs into it."""

    def __init__(self, routing: PoolRouting, device: torch.device, handle: Any) -> None:
        self._routing, self._device, self._handle = routing, device, handle
        self._is_taken = False
        self._of_host = engine().hold_host_pool(str(device), tuple(handle))

    def taken_again(self) -> None:
        """The allocator has counted one more; one is enough."""
        if self._is_taken:
            with suppress(RuntimeError):
                self._routing.release_pool(self._device, self._handle)
        self._is_taken = True

    @untraced
    def end(self) -> None:
        if self._of_host:
            self._of_host = False
            engine().release_host_pool(str(self._device), tuple(self._handle))
        if self._is_taken:
            # Noted first: a use that is left costs memory, one that is taken back twice a neighbour's.
            self._is_taken = False
            with suppress(RuntimeError):
                self._routing.release_pool(self._device, self._handle)


class DevicePool(MemoryPool):
    """A private pool of the device's caching allocator; it holds memory as long as a graph in it lives.

    handle: as the device's own graphs take it.
    """

    def __init__(self, device: torch.device, routing: PoolRouting, handle: Any) -> None:
        super().__init__(device, engine().ReplayLock())
        self._routing = routing
        self._handle = handle
        self._use: _Use | None = None

    @property
    def handle(self) -> Any:
        if self._handle is None:
            self._handle = self._routing.module.graph_pool_handle()
        return self._handle

    def routed(self) -> AbstractContextManager[Any]:
        """What this thread allocates within comes from the pool, which from then on is kept while a graph lives."""
        if self._use is None:
            self._use = _Use(self._routing, self.device, self.handle)
            # Not at the end of the process, when the device may be shut down.
            weakref.finalize(self, self._use.end).atexit = False
        block: AbstractContextManager[Any] = _routed_class()(self._routing, self.device, self.handle, self._use)
        return block

    @property
    def footprint(self) -> Footprint:
        """The arena is the segments that the allocator keeps for this pool, but for the buffers of inputs."""
        return Footprint(self.held().arena_nbytes, self.inputs.nbytes)

    def held(self) -> Held:
        """What the allocator keeps for this pool, but for the buffers of inputs."""
        segments = self._routing.pool_segments(self._handle) if self._handle else []
        of_inputs = self.inputs.addresses()
        blocks = frozenset(
            block["address"]
            for segment in segments
            for block in segment["blocks"]
            if block["state"] == "active_allocated" and block["address"] not in of_inputs
        )
        return Held(max(0, sum(each["total_size"] for each in segments) - sum(self.inputs.nbytes)), blocks)

    def nbytes_with(self, footprint: Footprint) -> int:
        held = self.footprint
        grown = [
            new if position >= len(self.inputs.block_nbytes) or new > self.inputs.block_nbytes[position] else 0
            for position, new in enumerate(footprint.inputs_nbytes)
        ]
        return max(held.arena_nbytes, footprint.arena_nbytes) + sum(held.inputs_nbytes) + sum(grown)

    def give_back(self) -> None:
        self._routing.module.empty_cache()

    def _let_go(self) -> None:
        super()._let_go()
        if not self._live():
            # The allocator lets no graph into a pool that its last graph has left.
            self._handle = None
            if self._use is not None:
                self._use.end()
                self._use = None


@functools.cache
def _routed_class() -> Any:
    # Made at first use: the engine may have to be compiled.
    class Routed(engine().Block):  # type: ignore[misc]
        """However it is left, at whatever point, nothing is routed afterwards: the pool may die before the next
        allocation, which the allocator would not survive."""

        def __init__(self, routing: PoolRouting, device: torch.device, handle: Any, use: _Use) -> None:
            super().__init__()
            self._routing, self._device, self._handle, self._use = routing, device, handle, use
            self._is_counted = False

        def _enter(self) -> None:
            self._routing.start_routing(self._device, self._handle)
            self._count()

        def _count(self) -> None:
            if not self._is_counted:
                # Noted first, as in `_Use.end`.
                self._is_counted = True
                self._use.taken_again()

        def _leave(self, *raised: object) -> None:
            self._recover()

        def _recover(self) -> None:
            try:
                self._routing.stop_routing(self._device, self._handle)
            except RuntimeError:
                # Nothing is routed.
                return
            self._count()

    return Routed
