"""The buffers that user inputs are copied into, shared by the graphs of a pool."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Protocol

import torch

from airgraph.torch_internals.storages import StorageWeakRef

__all__ = ["Follower", "InputBuffers"]


class Follower(Protocol):
    """Who uses a buffer and can use another block of memory instead."""

    def move_to(self, address: int) -> None: ...


@dataclass(slots=True, eq=False)
class _Shared:
    """Of one position: its block, who follows it, and those that it has replaced, with their sizes and addresses."""

    block: torch.Tensor
    followers: weakref.WeakSet[Follower] = field(default_factory=weakref.WeakSet)
    replaced: list[tuple[StorageWeakRef, int, int]] = field(default_factory=list)


class InputBuffers:
    """One block of memory for each copied input, sized for the largest capture.

    A block that is too small is replaced. Graphs that can follow move to the new one; the others keep the old. An
    exception of a signal handler may fall anywhere: each change is whole, or made up for by the next one.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._shared: list[_Shared] = []
        # Blocks that were replaced and that graphs may still use.
        self._leaving: list[torch.Tensor] = []

    @property
    def block_nbytes(self) -> tuple[int, ...]:
        """Of the blocks that the next capture may use."""
        return tuple(each.block.nbytes for each in self._shared)

    @property
    def nbytes(self) -> tuple[int, ...]:
        """Of all blocks by input, those included that were replaced and that older graphs keep."""
        return tuple(
            each.block.nbytes + sum(nbytes for storage, nbytes, _ in each.replaced if not storage.expired())
            for each in self._shared
        )

    def addresses(self) -> frozenset[int]:
        """Where the blocks lie, those included that older graphs keep."""
        kept = [address for each in self._shared for gone, _, address in each.replaced if not gone.expired()]
        return frozenset((*(each.block.data_ptr() for each in self._shared), *kept))

    def block(self, position: int, nbytes: int, follower: Follower | None = None) -> torch.Tensor:
        """A block of at least `nbytes`, as bytes, for the input at this position among the copied ones.

        follower: is told where the block lies, now and whenever another takes its place; held weakly.
        """
        while len(self._shared) <= position:
            self._shared.append(_Shared(self._made(0)))
        shared = self._shared[position]
        if shared.block.nbytes < nbytes:
            old = shared.block
            replaced = [*shared.replaced, (StorageWeakRef(old.untyped_storage()), old.nbytes, old.data_ptr())]
            # It lives until all have moved, in the next call if this one is interrupted.
            self._leaving.append(shared.block)
            made = self._made(nbytes)
            # No handler of a signal runs between two assignments.
            shared.block, shared.replaced = made, replaced
        if self._leaving:
            for each in self._shared:
                for one in list(each.followers):
                    one.move_to(each.block.data_ptr())
            self._leaving.clear()
        if follower is not None:
            shared.followers.add(follower)
            follower.move_to(shared.block.data_ptr())
        return shared.block

    def clear(self) -> None:
        self._shared.clear()

    def _made(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, device=self._device)
