"""Attention of training, without dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from airgraph.npu_operators.attention.core import attended, softmax_statistics
from airgraph.npu_operators.attention.layouts import from_heads, to_heads
from airgraph.npu_operators.attention.masks import EVERYTHING, Sparsity, by_query_and_key, hidden_keys
from airgraph.npu_operators.attention.sequences import segments
from airgraph.npu_operators.declaration import Operator, require

__all__ = ["OPERATORS"]

_NAME = "npu_fusion_attention"
_LAYOUTS = ("BSH", "SBH", "BSND", "BNSD")
# As often a card repeats each number of the softmax.
_REPEATS = 8


def _fusion_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    input_layout: str,
    *,
    atten_mask: Tensor | None = None,
    scale: float = 1.0,
    pre_tockens: int = EVERYTHING,
    next_tockens: int = EVERYTHING,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int, int]:
    """The attention, its softmax's largest scores and sums, and four results that only dropout gives a meaning."""
    require(sparse_mode in (0, 1, 2, 3, 4), _NAME, "sparse_mode", "0 to 4", sparse_mode)
    # Without a mask the other settings mean nothing, as documented.
    sparsity = Sparsity(sparse_mode if atten_mask is not None else 1, pre_tockens, next_tockens)
    unused = query.new_empty(0)
    if input_layout == "TND":
        arguments = {"actual_seq_qlen": actual_seq_qlen, "actual_seq_kvlen": actual_seq_kvlen}
        out = torch.zeros_like(query[..., : value.shape[-1]])
        parts = []
        for q, k, v in segments(_NAME, query, key, value, arguments):
            hidden = _hidden(sparsity, atten_mask, q, k)
            parts.append(attended(q, k, v, hidden, scale)[0].transpose(0, 1))
        rows = sum(part.shape[0] for part in parts)
        out = torch.cat([*parts, out[rows:]])
        statistics = query.new_empty(0, dtype=torch.float32)
        return out, statistics, statistics.clone(), unused, 0, 0, 0
    require(input_layout in _LAYOUTS, _NAME, "input_layout", f"TND or one of {_LAYOUTS}", input_layout)
    for name, given in (("actual_seq_qlen", actual_seq_qlen), ("actual_seq_kvlen", actual_seq_kvlen)):
        require(given is None, _NAME, name, f"None with input_layout={input_layout!r}", given)
    q = to_heads(_NAME, "query", query, input_layout, head_num)
    key_heads = _key_heads(key, input_layout, q.shape[-1])
    require(key_heads and head_num % key_heads == 0, _NAME, "key", f"of heads that divide {head_num}", key)
    k = to_heads(_NAME, "key", key, input_layout, key_heads)
    v = to_heads(_NAME, "value", value, input_layout, key_heads)
    hidden = _hidden(sparsity, atten_mask, q, k)
    largest, total = softmax_statistics(q, k, hidden, scale)
    shape = (*largest.shape[:-1], _REPEATS)
    out = from_heads(attended(q, k, v, hidden, scale), input_layout)
    return out, largest.expand(shape).contiguous(), total.expand(shape).contiguous(), unused, 0, 0, 0


def _key_heads(key: Tensor, layout: str, size: Any) -> Any:
    if len(layout) == 3:
        return key.shape[-1] // size
    return key.shape[layout.index("N")]


def _hidden(sparsity: Sparsity, mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    """What is hidden, of queries and keys as [batch, heads, length, size]."""
    if mask is None:
        return None
    queries, keys = query.shape[2], key.shape[2]
    by_mask = by_query_and_key(_NAME, mask, sparsity.mode, queries, keys)
    by_position = hidden_keys(sparsity, queries, keys, query.device)
    if by_mask is None or by_position is None:
        return by_position if by_mask is None else by_mask
    return by_mask | by_position


OPERATORS = (
    Operator(
        "npu_fusion_attention(Tensor query, Tensor key, Tensor value, int head_num, str input_layout, "
        "Tensor? pse=None, Tensor? padding_mask=None, Tensor? atten_mask=None, float scale=1., float keep_prob=1., "
        "int pre_tockens=2147483647, int next_tockens=2147483647, int inner_precise=0, int[]? prefix=None, "
        "int[]? actual_seq_qlen=None, int[]? actual_seq_kvlen=None, int sparse_mode=0, bool gen_mask_parallel=True, "
        'bool sync=False, str softmax_layout="", Tensor? sink=None, Tensor? dropout_mask=None, int seed=0, '
        "int offset=0) -> (Tensor, Tensor, Tensor, Tensor, int, int, int)",
        _fusion_attention,
        refused=(
            "pse",
            "padding_mask",
            "keep_prob",
            "prefix",
            "softmax_layout",
            "sink",
            "dropout_mask",
            "seed",
            "offset",
        ),
        hints=("inner_precise", "gen_mask_parallel", "sync"),
    ),
)
