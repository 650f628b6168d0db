"""Attention as loops over batch, heads and queries: what may attend to what is asked of a function."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["attention", "causal", "sequences"]

Visible = Callable[[int, int, int], bool]


def causal(b: int, i: int, j: int) -> bool:
    return j <= i


def attention(
    query: Tensor, key: Tensor, value: Tensor, scale: float, visible: Visible = lambda b, i, j: True
) -> tuple[Tensor, Tensor, Tensor]:
    """Of [batch, heads, length, size]: the attention, the largest score and the sum of exp(score - largest), [.., 1].

    visible: of batch, query and key. A query that sees nothing has zeros, -inf and 0.
    """
    batch, heads, queries, _ = query.shape
    shared = heads // key.shape[1]
    out = query.new_zeros(*query.shape[:3], value.shape[3])
    largest, total = query.new_full((*query.shape[:3], 1), -torch.inf), query.new_zeros(*query.shape[:3], 1)
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                seen = [j for j in range(key.shape[2]) if visible(b, i, j)]
                if not seen:
                    continue
                scores = key[b, h // shared, seen] @ query[b, h, i] * scale
                weights = (scores - scores.max()).exp()
                out[b, h, i] = weights @ value[b, h // shared, seen] / weights.sum()
                largest[b, h, i, 0], total[b, h, i, 0] = scores.max(), weights.sum()
    return out, largest, total


def sequences(x: Tensor, ends: list[int]) -> list[Tensor]:
    """The sequences of [tokens, heads, size], each [1, heads, length, size]."""
    begins = [0, *ends]
    return [x[begin:end].transpose(0, 1)[None] for begin, end in zip(begins, ends, strict=False)]
