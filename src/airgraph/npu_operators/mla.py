"""Multi-head latent attention: what comes before the attention itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from airgraph.npu_operators.declaration import Operator, require
from airgraph.npu_operators.normalisation import normalised
from airgraph.npu_operators.rotary import rotated_from_pairs
from airgraph.npu_operators.slots import write_slots

__all__ = ["OPERATORS"]

_NAME = "npu_mla_prolog_v3"


def _mla_prolog(
    token_x: Tensor,
    weight_dq: Tensor,
    weight_uq_qr: Tensor,
    weight_uk: Tensor,
    weight_dkv_kr: Tensor,
    rmsnorm_gamma_cq: Tensor,
    rmsnorm_gamma_ckv: Tensor,
    rope_sin: Tensor,
    rope_cos: Tensor,
    kv_cache: Tensor,
    kr_cache: Tensor,
    *,
    cache_index: Tensor | None = None,
    rmsnorm_epsilon_cq: float = 1e-5,
    rmsnorm_epsilon_ckv: float = 1e-5,
    cache_mode: str = "PA_BSND",
    query_norm_flag: bool = False,
    qc_qr_scale: float = 1.0,
    kc_scale: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Writes the content of keys to kv_cache and their positions to kr_cache; gives the two parts of the query."""
    weights = (weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr)
    gammas = (rmsnorm_gamma_cq, rmsnorm_gamma_ckv)
    _check(token_x, weights, gammas, (rope_sin, rope_cos), (kv_cache, kr_cache), cache_index, cache_mode)
    _check_norm(query_norm_flag, qc_qr_scale)
    assert cache_index is not None
    heads, content_size, rank = weight_uk.shape
    rope = rope_sin.shape[-1]
    latent, _ = normalised(token_x @ weight_dq, rmsnorm_gamma_cq, rmsnorm_epsilon_cq)
    # One factor for both parts of the query, which depend on this linearly.
    query = (_scaled(latent, qc_qr_scale) @ weight_uq_qr).unflatten(-1, (heads, content_size + rope))
    content, position = query.split([content_size, rope], -1)
    tokens = content.reshape(-1, heads, content_size).transpose(0, 1)
    content = torch.bmm(tokens, weight_uk).transpose(0, 1).reshape(*token_x.shape[:-1], heads, rank)
    position = rotated_from_pairs(position, rope_cos.unsqueeze(-2), rope_sin.unsqueeze(-2))
    key, key_position = (token_x @ weight_dkv_kr).split([rank, rope], -1)
    key, _ = normalised(key, rmsnorm_gamma_ckv, rmsnorm_epsilon_ckv)
    slots = cache_index.flatten()
    write_slots(kv_cache, slots, _scaled(key, kc_scale).reshape(-1, 1, rank))
    write_slots(kr_cache, slots, rotated_from_pairs(key_position, rope_cos, rope_sin).reshape(-1, 1, rope))
    unused = token_x.new_zeros(1, dtype=torch.float32)
    norm = latent.contiguous() if query_norm_flag else weight_uq_qr.new_zeros(1)
    return content.contiguous(), position.contiguous(), unused, norm, unused.clone()


def _scaled(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1 else x * factor


def _mla_prolog_fake(
    token_x: Tensor,
    weight_dq: Tensor,
    weight_uq_qr: Tensor,
    weight_uk: Tensor,
    weight_dkv_kr: Tensor,
    rmsnorm_gamma_cq: Tensor,
    rmsnorm_gamma_ckv: Tensor,
    rope_sin: Tensor,
    rope_cos: Tensor,
    kv_cache: Tensor,
    kr_cache: Tensor,
    *,
    cache_index: Tensor | None = None,
    cache_mode: str = "PA_BSND",
    query_norm_flag: bool = False,
    qc_qr_scale: float = 1.0,
    **_: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    weights = (weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr)
    gammas = (rmsnorm_gamma_cq, rmsnorm_gamma_ckv)
    _check(token_x, weights, gammas, (rope_sin, rope_cos), (kv_cache, kr_cache), cache_index, cache_mode)
    _check_norm(query_norm_flag, qc_qr_scale)
    tokens, heads = token_x.shape[:-1], weight_uk.shape[0]
    unused = token_x.new_empty(1, dtype=torch.float32)
    norm = token_x.new_empty((*tokens, weight_dq.shape[1])) if query_norm_flag else weight_uq_qr.new_empty(1)
    query = token_x.new_empty((*tokens, heads, weight_uk.shape[2]))
    return query, token_x.new_empty((*tokens, heads, rope_sin.shape[-1])), unused, norm, torch.empty_like(unused)


def _check_norm(query_norm_flag: bool, qc_qr_scale: float) -> None:
    expected = "False where qc_qr_scale is not 1: whether it is scaled is documented nowhere"
    require(not query_norm_flag or qc_qr_scale == 1, _NAME, "query_norm_flag", expected, query_norm_flag)


def _check(
    token_x: Tensor,
    weights: tuple[Tensor, ...],
    gammas: tuple[Tensor, Tensor],
    angles: tuple[Tensor, Tensor],
    caches: tuple[Tensor, Tensor],
    cache_index: Tensor | None,
    cache_mode: str,
) -> None:
    require(cache_mode == "PA_BSND", _NAME, "cache_mode", "'PA_BSND'", cache_mode)
    require(token_x.is_floating_point(), _NAME, "token_x", "of a floating type; nothing is quantised", token_x.dtype)
    require(token_x.dim() in (2, 3), _NAME, "token_x", "of 2 or 3 dimensions", token_x)
    uk = weights[2]
    require(uk.dim() == 3, _NAME, "weight_uk", "of shape [heads, content, rank]", uk)
    heads, content, rank = uk.shape
    width, query_rank, rope = token_x.shape[-1], gammas[0].shape[-1], angles[0].shape[-1]
    tokens = tuple(token_x.shape[:-1])
    forms = {
        "weight_dq": (weights[0], (width, query_rank)),
        "weight_uq_qr": (weights[1], (query_rank, heads * (content + rope))),
        "weight_dkv_kr": (weights[3], (width, rank + rope)),
        "rmsnorm_gamma_cq": (gammas[0], (query_rank,)),
        "rmsnorm_gamma_ckv": (gammas[1], (rank,)),
        "rope_sin": (angles[0], (*tokens, rope)),
        "rope_cos": (angles[1], (*tokens, rope)),
    }
    for name, (given, shape) in forms.items():
        require(tuple(given.shape) == shape, _NAME, name, f"of shape {shape}", given)
    for name, given in zip(("weight_dq", "weight_uq_qr", "weight_uk", "weight_dkv_kr"), weights, strict=True):
        require(given.dtype == token_x.dtype, _NAME, name, f"of token_x's type {token_x.dtype}", given.dtype)
    for name, cache, size in zip(("kv_cache", "kr_cache"), caches, (rank, rope), strict=True):
        fits = cache.dim() == 4 and cache.shape[2] == 1 and cache.shape[3] == size
        require(fits, _NAME, name, f"of shape [blocks, block size, 1, {size}]", cache)
        require(cache.dtype == token_x.dtype, _NAME, name, f"of token_x's type {token_x.dtype}", cache.dtype)
    if cache_index is None or tuple(cache_index.shape) != tokens:
        require(False, _NAME, "cache_index", f"of shape {tokens} with cache_mode='PA_BSND'", cache_index)


OPERATORS = (
    Operator(
        "npu_mla_prolog_v3(Tensor token_x, Tensor weight_dq, Tensor weight_uq_qr, Tensor weight_uk, "
        "Tensor weight_dkv_kr, Tensor rmsnorm_gamma_cq, Tensor rmsnorm_gamma_ckv, Tensor rope_sin, Tensor rope_cos, "
        "Tensor(a!) kv_cache, Tensor(b!) kr_cache, *, Tensor? cache_index=None, Tensor? dequant_scale_x=None, "
        "Tensor? dequant_scale_w_dq=None, Tensor? dequant_scale_w_uq_qr=None, Tensor? dequant_scale_w_dkv_kr=None, "
        "Tensor? quant_scale_ckv=None, Tensor? quant_scale_ckr=None, Tensor? smooth_scales_cq=None, "
        "Tensor? actual_seq_len=None, Tensor? k_nope_clip_alpha=None, float rmsnorm_epsilon_cq=1e-05, "
        'float rmsnorm_epsilon_ckv=1e-05, str cache_mode="PA_BSND", bool query_norm_flag=False, '
        "int weight_quant_mode=0, int kv_cache_quant_mode=0, int query_quant_mode=0, int ckvkr_repo_mode=0, "
        "int quant_scale_repo_mode=0, int tile_size=128, float qc_qr_scale=1., float kc_scale=1., "
        "int? token_x_dtype=None, int? weight_dq_dtype=None, int? weight_uq_qr_dtype=None, "
        "int? weight_dkv_kr_dtype=None, int? kv_cache_dtype=None) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
        _mla_prolog,
        refused=(
            *("dequant_scale_x", "dequant_scale_w_dq", "dequant_scale_w_uq_qr", "dequant_scale_w_dkv_kr"),
            *("quant_scale_ckv", "quant_scale_ckr", "smooth_scales_cq", "actual_seq_len", "k_nope_clip_alpha"),
            *("weight_quant_mode", "kv_cache_quant_mode", "query_quant_mode", "ckvkr_repo_mode"),
            *("quant_scale_repo_mode", "tile_size", "token_x_dtype", "weight_dq_dtype", "weight_uq_qr_dtype"),
            *("weight_dkv_kr_dtype", "kv_cache_dtype"),
        ),
        fake=_mla_prolog_fake,
    ),
)
