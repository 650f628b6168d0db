"""Operators that put values into caches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from airgraph.npu_operators.declaration import Operator, require
from airgraph.npu_operators.normalisation import normalised
from airgraph.npu_operators.rotary import rotated_from_pairs
from airgraph.npu_operators.slots import write_slots

__all__ = ["OPERATORS"]


def _scatter_nd_update(input: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    _check_scatter("npu_scatter_nd_update", input, indices, updates)
    return input.index_put(indices.long().unbind(-1), updates)


def _scatter_nd_update_in_place(input: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    _check_scatter("npu_scatter_nd_update_", input, indices, updates)
    return input.index_put_(indices.long().unbind(-1), updates)


def _check_scatter(name: str, input: Tensor, indices: Tensor, updates: Tensor) -> None:
    require(indices.dtype in (torch.int32, torch.int64), name, "indices", "int32 or int64", indices.dtype)
    require(updates.dtype == input.dtype, name, "updates", f"of input's type {input.dtype}", updates.dtype)
    require(
        indices.dim() >= 2 and 1 <= indices.shape[-1] <= input.dim(),
        name,
        "indices",
        f"of at least 2 dimensions, the last between 1 and {input.dim()}",
        indices,
    )
    expected = (*indices.shape[:-1], *input.shape[indices.shape[-1] :])
    require(tuple(updates.shape) == expected, name, "updates", f"of shape {expected}", updates)


_KV = "npu_kv_rmsnorm_rope_cache_v2"
_PAGED = ("PA", "PA_BNSD")


def _kv_rmsnorm_rope_cache(
    kv: Tensor,
    gamma: Tensor,
    cos: Tensor,
    sin: Tensor,
    index: Tensor,
    k_cache: Tensor,
    ckv_cache: Tensor,
    *,
    epsilon: float = 1e-5,
    cache_mode: str = "Norm",
    is_output_kv: bool = False,
) -> tuple[Tensor, Tensor]:
    """Normalises the first part of kv into ckv_cache, turns the second by position into k_cache."""
    rank, rope = _check_kv(kv, gamma, cos, sin, index, k_cache, ckv_cache, cache_mode)
    content, position = kv.split([rank, rope], -1)
    ckv, _ = normalised(content, gamma, epsilon)
    k = rotated_from_pairs(position, cos, sin)
    batch, _, length, _ = kv.shape
    if cache_mode == "Norm":
        # A row of the cache belongs to each of the batch, which is then its block.
        rows = torch.arange(batch, device=kv.device)[:, None] * k_cache.shape[2]
        slots = torch.where(index >= 0, rows + index, -1)
        write_slots(k_cache[:, 0], slots.flatten(), k.reshape(batch * length, rope))
        write_slots(ckv_cache[:, 0], slots.flatten(), ckv.reshape(batch * length, rank))
    else:
        write_slots(k_cache, index.flatten(), k.reshape(batch * length, 1, rope))
        write_slots(ckv_cache, index.flatten(), ckv.reshape(batch * length, 1, rank))
    if is_output_kv:
        return k.contiguous(), ckv.contiguous()
    return torch.zeros_like(k, memory_format=torch.contiguous_format), torch.zeros_like(
        ckv, memory_format=torch.contiguous_format
    )


def _kv_rmsnorm_rope_cache_fake(
    kv: Tensor,
    gamma: Tensor,
    cos: Tensor,
    sin: Tensor,
    index: Tensor,
    k_cache: Tensor,
    ckv_cache: Tensor,
    *,
    cache_mode: str = "Norm",
    **_: Any,
) -> tuple[Tensor, Tensor]:
    rank, rope = _check_kv(kv, gamma, cos, sin, index, k_cache, ckv_cache, cache_mode)
    return kv.new_empty((*kv.shape[:3], rope)), kv.new_empty((*kv.shape[:3], rank))


def _check_kv(
    kv: Tensor, gamma: Tensor, cos: Tensor, sin: Tensor, index: Tensor, k_cache: Tensor, ckv_cache: Tensor, mode: str
) -> tuple[Any, Any]:
    """The sizes of kv's two parts."""
    require(mode in ("Norm", *_PAGED), _KV, "cache_mode", "'Norm', 'PA' or 'PA_BNSD'", mode)
    require(kv.dim() == 4 and kv.shape[1] == 1, _KV, "kv", "of shape [batch, 1, length, rank + rope]", kv)
    require(gamma.dim() == 1, _KV, "gamma", "of one dimension", gamma)
    batch, _, length, width = kv.shape
    rank, rope = gamma.shape[0], width - gamma.shape[0]
    require(rope > 0 and rope % 2 == 0, _KV, "kv", f"{rank} (gamma's size) and an even number wide", kv)
    for name, given in (("cos", cos), ("sin", sin)):
        fits = given.dim() == 4 and given.shape[0] == batch and given.shape[1] == 1 and given.shape[3] == rope
        require(fits and given.shape[2] in (1, length), _KV, name, f"of shape {(batch, 1, length, rope)}", given)
    for name, cache, size in (("k_cache", k_cache, rope), ("ckv_cache", ckv_cache, rank)):
        require(cache.dtype == kv.dtype, _KV, name, f"of kv's type {kv.dtype}; caches are not quantised", cache.dtype)
        heads = 1 if mode == "Norm" else 2
        fits = cache.dim() == 4 and cache.shape[heads] == 1 and cache.shape[3] == size
        fits = fits and (mode != "Norm" or cache.shape[0] == batch)
        form = f"[{batch}, 1, length, {size}]" if mode == "Norm" else f"[blocks, block size, 1, {size}]"
        require(fits, _KV, name, f"of shape {form} with cache_mode={mode!r}", cache)
    fits = index.numel() == batch * length and index.dtype in (torch.int32, torch.int64)
    fits = fits and (mode != "Norm" or tuple(index.shape) == (batch, length))
    form = str((batch, length) if mode == "Norm" else (batch * length,))
    require(fits, _KV, "index", f"integers of shape {form} with cache_mode={mode!r}", index)
    return rank, rope


OPERATORS = (
    Operator("npu_scatter_nd_update(Tensor input, Tensor indices, Tensor updates) -> Tensor", _scatter_nd_update),
    Operator(
        "npu_scatter_nd_update_(Tensor(a!) input, Tensor indices, Tensor updates) -> Tensor(a!)",
        _scatter_nd_update_in_place,
    ),
    Operator(
        "npu_kv_rmsnorm_rope_cache_v2(Tensor kv, Tensor gamma, Tensor cos, Tensor sin, Tensor index, "
        "Tensor(a!) k_cache, Tensor(b!) ckv_cache, *, Tensor? k_rope_scale=None, Tensor? c_kv_scale=None, "
        "Tensor? k_rope_offset=None, Tensor? c_kv_offset=None, Tensor? v=None, float epsilon=1e-05, "
        'str cache_mode="Norm", bool is_output_kv=False, int? k_cache_dtype=None, int? ckv_cache_dtype=None) '
        "-> (Tensor, Tensor)",
        _kv_rmsnorm_rope_cache,
        refused=(
            *("k_rope_scale", "c_kv_scale", "k_rope_offset", "c_kv_offset", "v"),
            *("k_cache_dtype", "ckv_cache_dtype"),
        ),
        fake=_kv_rmsnorm_rope_cache_fake,
    ),
)
