"""Write tokens into a cache by the numbers of their slots."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["write_slots"]


def write_slots(cache: Tensor, slots: Tensor, tokens: Tensor) -> None:
    """Write each token to its slot, in place; tokens whose slot is negative are left out.

    cache: [blocks, block size, ...], of any strides. slots: [tokens], integers, none of them twice; slot s is in block
    s // block size. tokens: [tokens, ...]. Nothing waits for the device.
    """
    if slots.shape[0] == 0 or cache.numel() == 0:
        return
    slots = slots.long()
    written = slots >= 0
    # How many are left out is not asked, which would wait. Each of them writes what the first written token does, and
    # where; if there is none, what its place has.
    first = written.int().argmax(0, keepdim=True)
    target = torch.where(written, slots, slots[first]).clamp(min=0)
    block, offset = target // cache.shape[1], target % cache.shape[1]
    wide = (-1, *[1] * (tokens.dim() - 1))
    values = torch.where(written.view(wide), tokens, tokens[first])
    values = torch.where(written.any(), values, cache[block, offset])
    cache.index_put_((block, offset), values.to(cache.dtype))
