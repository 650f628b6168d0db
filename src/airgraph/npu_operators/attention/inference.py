"""Attention of inference: prompts, single queries over a cache, and both in one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from airgraph.npu_operators.attention.core import attended, softmax_statistics
from airgraph.npu_operators.attention.layouts import from_heads, to_heads
from airgraph.npu_operators.attention.masks import EVERYTHING, Sparsity, by_query_and_key, hidden_keys
from airgraph.npu_operators.attention.sequences import from_blocks, lengths_of_batch, segments
from airgraph.npu_operators.declaration import Operator, require

__all__ = ["OPERATORS"]

_PROMPT = "npu_prompt_flash_attention"
_INCREMENT = "npu_incre_flash_attention"
_FUSED = "npu_fused_infer_attention_score"
# How queries lie, and how the result does.
_LAYOUTS = {"BSH": ("BSH", "BSH"), "BSND": ("BSND", "BSND"), "BNSD": ("BNSD", "BNSD"), "BNSD_BSND": ("BNSD", "BSND")}
_Lengths = Sequence[Any] | None


def _prompt_flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    atten_mask: Tensor | None = None,
    actual_seq_lengths: _Lengths = None,
    num_heads: int = 1,
    scale_value: float = 1.0,
    pre_tokens: int = EVERYTHING,
    next_tokens: int = 0,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    actual_seq_lengths_kv: _Lengths = None,
    sparse_mode: int = 0,
) -> Tensor:
    sparsity = _sparsity(_PROMPT, sparse_mode, atten_mask, pre_tokens, next_tokens)
    ends = {"actual_seq_lengths": actual_seq_lengths, "actual_seq_lengths_kv": actual_seq_lengths_kv}
    if input_layout == "TND":
        return _one_behind_the_other(_PROMPT, query, key, value, ends, sparsity, atten_mask, scale_value)[0]
    given, returned = _layouts(_PROMPT, input_layout, tuple(_LAYOUTS))
    q, k, v = _heads(_PROMPT, query, key, value, given, num_heads, num_key_value_heads)
    hidden = _hidden(_PROMPT, sparsity, atten_mask, q, k, ends)
    return from_heads(attended(q, k, v, hidden, scale_value), returned)


def _incre_flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    atten_mask: Tensor | None = None,
    actual_seq_lengths: _Lengths = None,
    block_table: Tensor | None = None,
    num_heads: int = 1,
    scale_value: float = 1.0,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    block_size: int = 0,
) -> Tensor:
    given, returned = _layouts(_INCREMENT, input_layout, ("BSH", "BSND", "BNSD"))
    ends = {"query's": None, "actual_seq_lengths": actual_seq_lengths}
    q, k, v = _heads(_INCREMENT, query, key, value, given, num_heads, num_key_value_heads, block_table, block_size)
    require(q.shape[2] == 1, _INCREMENT, "query", f"of length 1, in the layout {input_layout!r}", query)
    _check_blocks(_INCREMENT, block_table, block_size, "actual_seq_lengths", actual_seq_lengths)
    hidden = _hidden(_INCREMENT, Sparsity(1 if atten_mask is not None else 0), atten_mask, q, k, ends)
    return from_heads(attended(q, k, v, hidden, scale_value), returned)


def _fused_infer_attention_score(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    atten_mask: Tensor | None = None,
    actual_seq_lengths: _Lengths = None,
    actual_seq_lengths_kv: _Lengths = None,
    block_table: Tensor | None = None,
    query_rope: Tensor | None = None,
    key_rope: Tensor | None = None,
    num_heads: int = 1,
    scale: float = 1.0,
    pre_tokens: int = EVERYTHING,
    next_tokens: int = EVERYTHING,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    sparse_mode: int = 0,
    block_size: int = 0,
    softmax_lse_flag: bool = False,
) -> tuple[Tensor, Tensor]:
    """The attention, and with softmax_lse_flag the logarithm of the sum of exp(score), else one zero."""
    both = (query_rope is None) == (key_rope is None)
    require(both, _FUSED, "key_rope", "given where query_rope is, and only there", key_rope)
    ends = {"actual_seq_lengths": actual_seq_lengths, "actual_seq_lengths_kv": actual_seq_lengths_kv}
    if input_layout == "TND":
        for name, refused in (("block_table", block_table), ("query_rope", query_rope)):
            require(refused is None, _FUSED, name, "None with input_layout='TND'", refused)
        sparsity = _sparsity(_FUSED, sparse_mode, atten_mask, pre_tokens, next_tokens)
        out, lse = _one_behind_the_other(_FUSED, query, key, value, ends, sparsity, atten_mask, scale)
        return out, lse if softmax_lse_flag else _no_lse(query)
    given, returned = _layouts(_FUSED, input_layout, tuple(_LAYOUTS))
    sizes = (num_heads, num_key_value_heads, block_table, block_size)
    q, k, v = _heads(_FUSED, query, key, value, given, *sizes)
    if query_rope is not None and key_rope is not None:
        # Scores are the sum of those of both parts, which a longer last dimension is.
        q_rope, k_rope, _ = _heads(_FUSED, query_rope, key_rope, key_rope, given, *sizes, "_rope")
        q, k = torch.cat((q, q_rope), -1), torch.cat((k, k_rope), -1)
    _check_blocks(_FUSED, block_table, block_size, "actual_seq_lengths_kv", actual_seq_lengths_kv)
    if q.shape[2] == 1:
        # For one query these mean nothing, as documented.
        require(sparse_mode in (0, 1, 3), _FUSED, "sparse_mode", "0, 1 or 3 for one query", sparse_mode)
        pre_tokens = next_tokens = EVERYTHING
        ends["actual_seq_lengths"] = None
    sparsity = _sparsity(_FUSED, sparse_mode, atten_mask, pre_tokens, next_tokens)
    hidden = _hidden(_FUSED, sparsity, atten_mask, q, k, ends)
    out = from_heads(attended(q, k, v, hidden, scale), returned)
    if not softmax_lse_flag:
        return out, _no_lse(query)
    largest, total = softmax_statistics(q, k, hidden, scale)
    return out, largest + total.log()


def _no_lse(query: Tensor) -> Tensor:
    return query.new_zeros(1, dtype=torch.float32)


def _layouts(operator: str, layout: str, known: tuple[str, ...]) -> tuple[str, str]:
    also = "" if operator == _INCREMENT else " or TND"
    require(layout in known, operator, "input_layout", f"one of {known}{also}", layout)
    return _LAYOUTS[layout]


def _sparsity(operator: str, mode: int, mask: Tensor | None, before: int, after: int) -> Sparsity:
    require(mode in (0, 1, 2, 3, 4), operator, "sparse_mode", "0 to 4", mode)
    # Without a mask there is no band either, as documented.
    return Sparsity(mode) if mode == 0 and mask is None else Sparsity(mode, before, after)


def _heads(
    operator: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    layout: str,
    heads: int,
    key_heads: int,
    table: Tensor | None = None,
    block_size: int = 0,
    suffix: str = "",
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value as [batch, heads, length, size]."""
    key_heads = key_heads or heads
    divides = heads > 0 and key_heads > 0 and heads % key_heads == 0
    require(divides, operator, "num_key_value_heads", f"a divisor of num_heads, {heads}, or 0", key_heads)
    for name, given in (("key", key), ("value", value)):
        same = given.dtype == query.dtype
        require(same, operator, name + suffix, f"of query's type {query.dtype}; nothing is quantised", given.dtype)
    q = to_heads(operator, "query" + suffix, query, layout, heads)
    if table is not None:
        k, v = (
            from_blocks(operator, each, table, key_heads, block_size, name + suffix)
            for name, each in (("key", key), ("value", value))
        )
    else:
        k = to_heads(operator, "key" + suffix, key, layout, key_heads)
        v = to_heads(operator, "value" + suffix, value, layout, key_heads)
    require(k.shape[0] == q.shape[0], operator, "key" + suffix, f"of query's batch {q.shape[0]}", key)
    return q, k, v


def _check_blocks(operator: str, table: Tensor | None, block_size: int, argument: str, lengths: _Lengths) -> None:
    if table is None:
        require(block_size == 0, operator, "block_size", "0 without a block_table", block_size)
    else:
        require(lengths is not None, operator, argument, "the length of each sequence with a block_table", lengths)


def _hidden(
    operator: str,
    sparsity: Sparsity,
    mask: Tensor | None,
    query: Tensor,
    key: Tensor,
    lengths: dict[str, _Lengths],
) -> Tensor | None:
    """What mask, positions and padding hide, broadcastable to [batch, heads, queries, keys]."""
    batch, queries, keys = query.shape[0], query.shape[2], key.shape[2]
    by_mask = by_query_and_key(operator, mask, sparsity.mode, queries, keys)
    (query_name, query_given), (key_name, key_given) = lengths.items()
    query_lengths = lengths_of_batch(operator, query_name, query_given, batch, queries)
    key_lengths = lengths_of_batch(operator, key_name, key_given, batch, keys)
    by_position: Tensor | None
    if query_lengths is None and key_lengths is None:
        by_position = hidden_keys(sparsity, queries, keys, query.device)
    else:
        unpadded = [None] * batch
        each = [
            hidden_keys(sparsity, queries, keys, query.device, used_queries=used_queries, used_keys=used_keys)
            for used_queries, used_keys in zip(query_lengths or unpadded, key_lengths or unpadded, strict=True)
        ]
        by_position = torch.stack([one for one in each if one is not None])[:, None]
    if by_mask is None or by_position is None:
        return by_position if by_mask is None else by_mask
    return by_mask | by_position


def _one_behind_the_other(
    operator: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    ends: dict[str, _Lengths],
    sparsity: Sparsity,
    mask: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """The attention of sequences in tensors [tokens, heads, size], and the logarithms of their sums."""
    outputs, sums = [], []
    for q, k, v in segments(operator, query, key, value, ends):
        hidden = _hidden(operator, sparsity, mask, q, k, {"": None, " ": None})
        outputs.append(attended(q, k, v, hidden, scale)[0].transpose(0, 1))
        largest, total = softmax_statistics(q, k, hidden, scale)
        sums.append((largest + total.log())[0].transpose(0, 1))
    done = sum(each.shape[0] for each in outputs)
    rest = query.shape[0] - done
    outputs.append(query.new_zeros((rest, query.shape[1], value.shape[2])))
    sums.append(query.new_zeros((rest, query.shape[1], 1), dtype=torch.float32))
    return torch.cat(outputs), torch.cat(sums)


OPERATORS = (
    Operator(
        "npu_prompt_flash_attention(Tensor query, Tensor key, Tensor value, *, Tensor? padding_mask=None, "
        "Tensor? atten_mask=None, Tensor? pse_shift=None, int[]? actual_seq_lengths=None, Tensor? deq_scale1=None, "
        "Tensor? quant_scale1=None, Tensor? deq_scale2=None, Tensor? quant_scale2=None, Tensor? quant_offset2=None, "
        "int num_heads=1, float scale_value=1., int pre_tokens=2147483647, int next_tokens=0, "
        'str input_layout="BSH", int num_key_value_heads=0, int[]? actual_seq_lengths_kv=None, '
        "int sparse_mode=0) -> Tensor",
        _prompt_flash_attention,
        refused=(
            *("padding_mask", "pse_shift", "deq_scale1", "quant_scale1", "deq_scale2", "quant_scale2"),
            "quant_offset2",
        ),
    ),
    Operator(
        "npu_incre_flash_attention(Tensor query, Tensor key, Tensor value, *, Tensor? padding_mask=None, "
        "Tensor? atten_mask=None, Tensor? pse_shift=None, SymInt[]? actual_seq_lengths=None, "
        "Tensor? antiquant_scale=None, Tensor? antiquant_offset=None, Tensor? block_table=None, "
        "Tensor? dequant_scale1=None, Tensor? quant_scale1=None, Tensor? dequant_scale2=None, "
        "Tensor? quant_scale2=None, Tensor? quant_offset2=None, Tensor? kv_padding_size=None, int num_heads=1, "
        'float scale_value=1., str input_layout="BSH", int num_key_value_heads=0, int block_size=0, '
        "int inner_precise=1) -> Tensor",
        _incre_flash_attention,
        refused=(
            *("padding_mask", "pse_shift", "antiquant_scale", "antiquant_offset", "dequant_scale1", "quant_scale1"),
            *("dequant_scale2", "quant_scale2", "quant_offset2", "kv_padding_size"),
        ),
        hints=("inner_precise",),
    ),
    Operator(
        "npu_fused_infer_attention_score(Tensor query, Tensor key, Tensor value, *, Tensor? pse_shift=None, "
        "Tensor? atten_mask=None, SymInt[]? actual_seq_lengths=None, SymInt[]? actual_seq_lengths_kv=None, "
        "Tensor? dequant_scale1=None, Tensor? quant_scale1=None, Tensor? dequant_scale2=None, "
        "Tensor? quant_scale2=None, Tensor? quant_offset2=None, Tensor? antiquant_scale=None, "
        "Tensor? antiquant_offset=None, Tensor? key_antiquant_scale=None, Tensor? key_antiquant_offset=None, "
        "Tensor? value_antiquant_scale=None, Tensor? value_antiquant_offset=None, Tensor? block_table=None, "
        "Tensor? query_padding_size=None, Tensor? kv_padding_size=None, Tensor? key_shared_prefix=None, "
        "Tensor? value_shared_prefix=None, SymInt[]? actual_shared_prefix_len=None, Tensor? query_rope=None, "
        "Tensor? key_rope=None, Tensor? key_rope_antiquant_scale=None, int num_heads=1, float scale=1., "
        'int pre_tokens=2147483647, int next_tokens=2147483647, str input_layout="BSH", int num_key_value_heads=0, '
        "int sparse_mode=0, int inner_precise=0, int block_size=0, int antiquant_mode=0, int key_antiquant_mode=0, "
        "int value_antiquant_mode=0, bool softmax_lse_flag=False) -> (Tensor, Tensor)",
        _fused_infer_attention_score,
        refused=(
            *("pse_shift", "dequant_scale1", "quant_scale1", "dequant_scale2", "quant_scale2", "quant_offset2"),
            *("antiquant_scale", "antiquant_offset", "key_antiquant_scale", "key_antiquant_offset"),
            *("value_antiquant_scale", "value_antiquant_offset", "query_padding_size", "kv_padding_size"),
            *("key_shared_prefix", "value_shared_prefix", "actual_shared_prefix_len", "key_rope_antiquant_scale"),
            *("antiquant_mode", "key_antiquant_mode", "value_antiquant_mode"),
        ),
        hints=("inner_precise",),
    ),
)
