"""softmax(query @ key.T * scale) @ value, over [batch, heads, length, size]."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["attended", "softmax_statistics"]


def attended(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor | None, scale: float) -> Tensor:
    """hidden: bool, broadcastable to [batch, query heads, queries, keys]. A query that nothing is left for gets zeros.

    Keys and values may have fewer heads, each then serves as many of the query's.
    """
    if key.shape[2] == 0:
        return query.new_zeros((*query.shape[:3], value.shape[3]))
    visible = None if hidden is None else ~hidden
    grouped = bool(query.shape[1] != key.shape[1])
    return F.scaled_dot_product_attention(query, key, value, visible, scale=scale, enable_gqa=grouped)


def softmax_statistics(query: Tensor, key: Tensor, hidden: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    """The largest score of each query and the sum of all exp(score - largest), float32, [batch, heads, queries, 1].

    Of a query that nothing is left for: -inf and 0. They carry no gradient.
    """
    if key.shape[2] == 0:
        largest = query.new_full((*query.shape[:3], 1), -torch.inf, dtype=torch.float32)
        return largest, torch.zeros_like(largest)
    query, key = query.detach().float(), key.detach().float()
    if query.shape[1] != key.shape[1]:
        key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    scores = query @ key.transpose(-1, -2) * scale
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    largest = scores.amax(-1, keepdim=True)
    shift = torch.where(largest == -torch.inf, 0, largest)
    return largest, (scores - shift).exp().sum(-1, keepdim=True)
