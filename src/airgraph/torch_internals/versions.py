"""In what releases of PyTorch that are supported differ, where the release itself must be asked."""

from __future__ import annotations

import functools

import torch

__all__ = ["pools_leak", "slices_count_storage"]


@functools.cache
def pools_leak() -> bool:
    """Whether a graph releases its pool only if its capture ended well (pytorch issue 190348).

    Where that is mended, to release it elsewhere would be once too often.
    """
    return tuple(map(int, torch.__version__.split(".")[:2])) < (2, 14)


@functools.cache
def slices_count_storage() -> bool:
    """Whether torch counts slices from the start of the storage, not of the tensor, as 2.13 does by mistake."""
    from torch._higher_order_ops.auto_functionalize import try_use_slice

    storage = torch.empty(6, device="meta")
    return try_use_slice(storage[2:], storage[3:5]) == (0, 3, 5)
