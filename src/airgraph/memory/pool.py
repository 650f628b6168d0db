"""Who owns the memory of captured graphs."""

from __future__ import annotations

import functools
import itertools
import sys
import weakref
from typing import Any, Protocol

import torch

from airgraph.memory.footprint import Footprint, overlaid
from airgraph.memory.input_buffers import InputBuffers
from airgraph.memory.region import Region
from airgraph.memory.replay_lock import ReplayLock
from airgraph.torch_internals.untraced import untraced

__all__ = ["ArenaPool", "Lease", "MemoryPool", "PoolLock"]

_ids = itertools.count(1)
_lease_ids = itertools.count(1)


class PoolLock(Protocol):
    """The right to run the graphs of a pool: `memory.replay_lock.ReplayLock`, or the native engine's."""

    def holding(self, what: str) -> Any: ...

    def if_free(self) -> Any: ...


class Lease:
    """A graph's share of a pool. While it lives the memory is the graph's to write, under its replay lock."""

    __slots__ = ("__weakref__", "footprint", "id", "pool", "region")

    def __init__(self, pool: MemoryPool, footprint: Footprint, region: Region | None = None) -> None:
        self.id = next(_lease_ids)
        self.pool = pool
        self.footprint = footprint
        self.region = region


class MemoryPool:
    """An owned handle to memory that captured graphs share; they run one at a time, see `replay_lock`.

    id: unique in the process. A closed pool takes no new graph; its memory goes with the last of its graphs.
    neighbours: what the runtime's graphs know of one another. replay_lock: a runtime whose graphs take it themselves
    gives its own. Whatever changes what the pool holds happens under that lock. A lease ends when it dies, at any
    moment and in any thread; it is struck off then, or when the lock is held next.
    """

    def __init__(self, device: torch.device, replay_lock: PoolLock | None = None) -> None:
        self.id = next(_ids)
        self.device = device
        self.closed = False
        self.replay_lock: PoolLock = ReplayLock() if replay_lock is None else replay_lock
        self.inputs = InputBuffers(device)
        self.neighbours: Any = None
        self._leased: dict[int, tuple[weakref.ref[Lease], Footprint]] = {}

    @property
    def device_type(self) -> str:
        """The kind of its device, such as "cpu"."""
        return self.device.type

    @property
    def footprint(self) -> Footprint:
        """What the graphs alive take together."""
        live = self._live()
        return overlaid((*live, Footprint(inputs_nbytes=self.inputs.nbytes if live else ())))

    @property
    def nbytes(self) -> int:
        """Bytes that the pool holds now."""
        return self.footprint.nbytes

    @property
    def unshared_nbytes(self) -> int:
        """Bytes that its graphs would hold if each had memory of its own."""
        return sum(footprint.nbytes for footprint in self._live())

    @property
    def graphs(self) -> int:
        """How many graphs live in the pool."""
        return len(self._live())

    def nbytes_with(self, footprint: Footprint) -> int:
        """Bytes that the pool would hold with one more graph."""
        return overlaid((self.footprint, footprint)).nbytes

    def take(self, footprint: Footprint) -> Lease:
        """Memory for one more graph. Ask under the pool's replay lock."""
        self.strike_off()
        return self._keep(Lease(self, footprint))

    def strike_off(self) -> None:
        """Let go of what ended leases held. Ask under the pool's replay lock."""
        dead = [lease_id for lease_id, (lease, _) in list(self._leased.items()) if lease() is None]
        if dead:
            # Off the list last: an exception that falls between leaves nothing behind.
            self._let_go()
            for lease_id in dead:
                self._leased.pop(lease_id, None)

    def give_back(self) -> None:
        """Return what no graph uses any more to the device."""

    def close(self) -> None:
        """Take no more graphs; those in it go on, and its memory goes with the last of them."""
        self.closed = True

    def _keep(self, lease: Lease) -> Lease:
        ended = functools.partial(_strike_off, weakref.ref(self))
        self._leased[lease.id] = weakref.ref(lease, ended), lease.footprint
        return lease

    def _let_go(self) -> None:
        """After leases ended."""
        if not self._live():
            self.inputs.clear()

    def _live(self) -> list[Footprint]:
        return [footprint for lease, footprint in list(self._leased.values()) if lease() is not None]

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}(id={self.id}, device={str(self.device)!r}, nbytes={self.nbytes}, graphs={self.graphs})"


@untraced
def _strike_off(reference: weakref.ref[MemoryPool], _: object) -> None:
    """A lease has ended: called in any thread, perhaps while a graph of the pool runs; what is raised here is lost."""
    pool = reference()
    if pool is not None and not sys.is_finalizing():
        with pool.replay_lock.if_free() as mine:
            if mine:
                pool.strike_off()


class ArenaPool(MemoryPool):
    """CPU memory. The intermediates of all its graphs overlay one another in one region."""

    def __init__(self, replay_lock: PoolLock | None = None) -> None:
        super().__init__(torch.device("cpu"), replay_lock)
        self._region: Region | None = None

    def take(self, footprint: Footprint) -> Lease:
        """Memory for one more graph; the lease's region holds its intermediates from the first byte on."""
        self.strike_off()
        if self._region is None or self._region.capacity < footprint.arena_nbytes:
            self._region = Region(footprint.arena_nbytes)
        return self._keep(Lease(self, footprint, self._region))

    def _let_go(self) -> None:
        super()._let_go()
        if not self._live():
            self._region = None
        elif self._region is not None:
            self._region.trim(self.footprint.arena_nbytes)
