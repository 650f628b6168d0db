"""Who owns the memory of captured graphs."""

from __future__ import annotations

import itertools
import weakref

import torch

from airgraph.memory.plan import ALIGNMENT

__all__ = ["Arena", "MemoryPool"]

_ids = itertools.count(1)


class Arena:
    """A block of CPU memory of one graph, aligned to 64 bytes. Freed with its last reference."""

    __slots__ = ("__weakref__", "memory", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.memory = torch.empty(nbytes + ALIGNMENT, dtype=torch.uint8, device="cpu")

    @property
    def address(self) -> int:
        return (self.memory.data_ptr() + ALIGNMENT - 1) & -ALIGNMENT


class MemoryPool:
    """An owned handle to the arenas of the graphs captured into it.

    Every graph has an arena of its own for now; a pool knows them for its figures, and does not keep them alive.
    """

    def __init__(self, device_type: str = "cpu") -> None:
        self.id = next(_ids)
        self.device_type = device_type
        self._arenas: weakref.WeakSet[Arena] = weakref.WeakSet()

    def open_arena(self, nbytes: int) -> Arena:
        """An arena of at least `nbytes`, owned by the caller."""
        arena = Arena(nbytes)
        self._arenas.add(arena)
        return arena

    @property
    def nbytes(self) -> int:
        """Bytes of all arenas alive."""
        return sum(arena.nbytes for arena in self._arenas)

    @property
    def graphs(self) -> int:
        """How many arenas are alive: one a graph."""
        return len(self._arenas)

    def __repr__(self) -> str:
        return f"MemoryPool(id={self.id}, device={self.device_type!r}, nbytes={self.nbytes}, graphs={self.graphs})"
