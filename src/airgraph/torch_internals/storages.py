"""The identity of storages, and references that do not keep them alive."""

from __future__ import annotations

import torch
from torch.multiprocessing.reductions import StorageWeakRef

__all__ = ["StorageWeakRef", "storage_id", "storage_of"]


def storage_id(owner: torch.Tensor | torch.UntypedStorage) -> int:
    """Of the storage itself, whatever Python object stands for it; unique while it or a StorageWeakRef lives."""
    storage = owner.untyped_storage() if isinstance(owner, torch.Tensor) else owner
    return int(storage._cdata)


def storage_of(reference: StorageWeakRef) -> torch.UntypedStorage | None:
    """The storage, if it still lives."""
    return torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
