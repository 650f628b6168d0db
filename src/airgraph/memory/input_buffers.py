"""The buffers that user inputs are copied into, shared by the graphs of a pool."""

from __future__ import annotations

import weakref
from typing import Protocol

import torch
from torch.multiprocessing.reductions import StorageWeakRef

__all__ = ["Follower", "InputBuffers"]


class Follower(Protocol):
    """Who uses a buffer and can use another block of memory instead."""

    def move_to(self, address: int) -> None: ...


class InputBuffers:
    """One block of memory for each copied input, sized for the largest capture.

    A block that is too small is replaced. Graphs that can follow move to the new one; the others keep the old.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._blocks: list[torch.Tensor] = []
        self._followers: list[weakref.WeakSet[Follower]] = []
        self._replaced: list[list[tuple[StorageWeakRef, int]]] = []
        # Blocks that were replaced and that graphs may still use.
        self._leaving: list[torch.Tensor] = []

    @property
    def block_nbytes(self) -> tuple[int, ...]:
        """Of the blocks that the next capture may use."""
        return tuple(block.nbytes for block in self._blocks)

    @property
    def nbytes(self) -> tuple[int, ...]:
        """Of all blocks by input, those included that were replaced and that older graphs keep."""
        return tuple(
            block.nbytes + sum(nbytes for storage, nbytes in replaced if not storage.expired())
            for block, replaced in zip(self._blocks, self._replaced, strict=True)
        )

    def block(self, position: int, nbytes: int, follower: Follower | None = None) -> torch.Tensor:
        """A block of at least `nbytes`, as bytes, for the input at this position among the copied ones.

        follower: is told where the block lies, now and whenever another takes its place; held weakly.
        """
        while len(self._blocks) <= position:
            self._blocks.append(torch.empty(0, dtype=torch.uint8, device=self._device))
            self._followers.append(weakref.WeakSet())
            self._replaced.append([])
        if self._blocks[position].nbytes < nbytes:
            old = self._blocks[position]
            self._replaced[position].append((StorageWeakRef(old.untyped_storage()), old.nbytes))
            # It lives until all have moved, in the next call if this one is interrupted.
            self._leaving.append(old)
            del old
            self._blocks[position] = torch.empty(nbytes, dtype=torch.uint8, device=self._device)
        if self._leaving:
            for block, followers in zip(self._blocks, self._followers, strict=True):
                for each in list(followers):
                    each.move_to(block.data_ptr())
            self._leaving.clear()
        block = self._blocks[position]
        if follower is not None:
            self._followers[position].add(follower)
            follower.move_to(block.data_ptr())
        return block

    def clear(self) -> None:
        self._blocks.clear()
        self._followers.clear()
        self._replaced.clear()
