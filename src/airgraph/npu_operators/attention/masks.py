"""Which queries attend to which keys: masks, and the modes that say it by positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from airgraph.npu_operators.declaration import require

__all__ = ["BY_POSITION", "EVERYTHING", "Sparsity", "by_query_and_key", "hidden_keys"]

EVERYTHING = 2147483647
_COMPRESSED = 2048
# Modes which get a triangle of a fixed size for a mask, and say by positions where it lies.
BY_POSITION = (2, 3, 4)


@dataclass(frozen=True, slots=True)
class Sparsity:
    """mode: 0 the mask within a band, 1 the mask, 2 causal from the first query and key, 3 causal from the last ones,
    4 a band from the last ones. before, after: how many keys before and after its own a query attends to in a band.
    """

    mode: int
    before: int = EVERYTHING
    after: int = EVERYTHING


def by_query_and_key(operator: str, mask: Tensor | None, mode: int, queries: Any, keys: Any) -> Tensor | None:
    """A mask as bool of shape [batch or 1, heads or 1, queries, keys], True where nothing attends.

    None for modes that go by positions, after a look at the mask's shape. A larger mask is cut: callers pad them.
    """
    name = "atten_mask"
    if mode in BY_POSITION:
        shape = (_COMPRESSED, _COMPRESSED)
        fits = mask is not None and tuple(mask.shape[-2:]) == shape and mask.numel() == _COMPRESSED**2
        require(fits, operator, name, f"the triangle of shape {shape} with sparse_mode={mode}", mask)
        return None
    if mask is None:
        require(mode == 0, operator, name, f"a tensor with sparse_mode={mode}", mask)
        return None
    require(mask.dtype in (torch.bool, torch.int8, torch.uint8), operator, name, "bool, int8 or uint8", mask.dtype)
    require(2 <= mask.dim() <= 4, operator, name, "of 2, 3 or 4 dimensions", mask)
    if mask.dim() == 2 and queries == 1 and mask.shape[0] != 1:
        # One query for each of the batch.
        mask = mask[:, None]
    if mask.dim() == 3:
        mask = mask[:, None]
    fits = mask.shape[-2] >= queries and mask.shape[-1] >= keys
    require(fits, operator, name, f"at least {queries} by {keys} in its last dimensions", mask)
    return mask[..., :queries, :keys].bool()


def hidden_keys(
    sparsity: Sparsity,
    queries: Any,
    keys: Any,
    device: torch.device,
    *,
    used_queries: Any = None,
    used_keys: Any = None,
) -> Tensor | None:
    """What positions hide, as bool of shape [queries, keys]; None if nothing.

    used_queries, used_keys: how many come before the padding, which is hidden too; None: all. The last of them is the
    last that modes 3 and 4 know.
    """
    row = torch.arange(queries, device=device)[:, None]
    column = torch.arange(keys, device=device)
    hidden = []
    distance = column - row
    if sparsity.mode in (3, 4):
        last_query = queries if used_queries is None else used_queries
        last_key = keys if used_keys is None else used_keys
        distance = distance - (last_key - last_query)
    after = 0 if sparsity.mode in (2, 3) else sparsity.after
    if sparsity.mode != 1 and after != EVERYTHING:
        hidden.append(distance > after)
    if sparsity.mode in (0, 4) and sparsity.before != EVERYTHING:
        hidden.append(distance < -sparsity.before)
    if used_queries is not None:
        hidden.append(row >= used_queries)
    if used_keys is not None:
        hidden.append(column >= used_keys)
    if not hidden:
        return None
    found = hidden[0]
    for each in hidden[1:]:
        found = found | each
    return found.expand(queries, keys)
