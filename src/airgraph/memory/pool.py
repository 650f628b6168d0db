"""Who owns the memory of captured graphs."""

from __future__ import annotations

import itertools
import weakref
from abc import ABC, abstractmethod

import torch

from airgraph.memory.plan import ALIGNMENT

__all__ = ["Arena", "ArenaPool", "MemoryPool"]

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


class MemoryPool(ABC):
    """An owned handle to memory that captured graphs share.

    id: unique in the process. A closed pool takes no new graph; its memory goes with the last of its graphs.
    """

    def __init__(self, device: torch.device) -> None:
        self.id = next(_ids)
        self.device = device
        self.closed = False

    @property
    def device_type(self) -> str:
        return self.device.type

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes that the pool holds now."""

    @property
    @abstractmethod
    def graphs(self) -> int:
        """How many graphs live in the pool."""

    def close(self) -> None:
        self.closed = True

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}(id={self.id}, device={str(self.device)!r}, nbytes={self.nbytes}, graphs={self.graphs})"


class ArenaPool(MemoryPool):
    """CPU memory. Every graph has an arena of its own for now; the pool does not keep them alive."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
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
