"""Multi-head latent attention of a toy size: arguments of its operators, and token by token what they compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Prolog", "kv_arguments", "kv_reference", "norm", "prolog_arguments", "prolog_reference", "turned"]

RANK, ROPE, BLOCK = 6, 4, 3


def norm(x: Tensor, gamma: Tensor, epsilon: float = 1e-5) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + epsilon).sqrt() * gamma


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Neighbours are turned, and come out as halves. Angles of a pair need not be equal."""
    a, b = x[..., ::2], x[..., 1::2]
    half = x.shape[-1] // 2
    first = a * cos[..., :half] - b * sin[..., :half]
    return torch.cat((first, b * cos[..., half:] + a * sin[..., half:]), -1)


def kv_arguments(mode: str, dtype: torch.dtype = torch.float32, batch: int = 2, length: int = 3) -> tuple[Tensor, ...]:
    """kv, gamma, cos, sin, index, k_cache, ckv_cache; one token of the index is left out."""
    if mode == "Norm":
        index = torch.stack([torch.randperm(7)[:length] for _ in range(batch)])
        forms: Any = [(batch, 1, 7, ROPE), (batch, 1, 7, RANK)]
    else:
        index = torch.randperm(4 * BLOCK)[: batch * length]
        forms = [(4, BLOCK, 1, ROPE), (4, BLOCK, 1, RANK)]
    index.view(-1)[1] = -1
    floats = [torch.randn(batch, 1, length, RANK + ROPE), torch.randn(RANK)]
    floats += [torch.randn(batch, 1, length, ROPE), torch.randn(batch, 1, length, ROPE)]
    kv, gamma, cos, sin = (each.to(dtype) for each in floats)
    return kv, gamma, cos, sin, index, *(torch.randn(form).to(dtype) for form in forms)


def kv_reference(mode: str, *arguments: Tensor, output: bool = True, epsilon: float = 1e-5) -> tuple[Tensor, Tensor]:
    kv, gamma, cos, sin, index, k_cache, ckv_cache = arguments
    ckv, k = norm(kv[..., :RANK], gamma, epsilon), turned(kv[..., RANK:], cos, sin)
    batch, _, length, _ = kv.shape
    for b in range(batch):
        for s in range(length):
            slot = int(index[b, s] if mode == "Norm" else index[b * length + s])
            if slot < 0:
                continue
            where = (b, 0, slot) if mode == "Norm" else (slot // BLOCK, slot % BLOCK, 0)
            k_cache[where], ckv_cache[where] = k[b, 0, s], ckv[b, 0, s]
    return (k, ckv) if output else (torch.zeros_like(k), torch.zeros_like(ckv))


@dataclass(frozen=True)
class Prolog:
    heads: int = 2
    content: int = 5
    width: int = 8
    query_rank: int = 7


def prolog_arguments(tokens: tuple[int, ...], dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """The positional arguments, and the index of the cache last."""
    p = Prolog()
    shapes = [
        (*tokens, p.width), (p.width, p.query_rank), (p.query_rank, p.heads * (p.content + ROPE)),
        (p.heads, p.content, RANK), (p.width, RANK + ROPE), (p.query_rank,), (RANK,), (*tokens, ROPE), (*tokens, ROPE),
        (4, BLOCK, 1, RANK), (4, BLOCK, 1, ROPE),
    ]  # fmt: skip
    index = torch.randperm(4 * BLOCK)[: torch.Size(tokens).numel()].view(tokens)
    return *((torch.randn(shape) / 2).to(dtype) for shape in shapes), index


def prolog_reference(
    *arguments: Tensor, query_norm: bool = False, query_scale: float = 1, key_scale: float = 1
) -> tuple[Tensor, ...]:
    x, dq, uq_qr, uk, dkv_kr, gamma_q, gamma_kv, sin, cos, kv_cache, kr_cache, index = arguments
    p = Prolog()
    latent = norm(x @ dq, gamma_q)
    queries, positions = [], []
    for head in range(p.heads):
        begin = head * (p.content + ROPE)
        weight = uq_qr[:, begin : begin + p.content + ROPE]
        queries.append(latent @ weight[:, : p.content] @ uk[head] * query_scale)
        positions.append(turned(latent @ weight[:, p.content :], cos, sin) * query_scale)
    key, position = norm(x @ dkv_kr[:, :RANK], gamma_kv) * key_scale, turned(x @ dkv_kr[:, RANK:], cos, sin)
    for slot, one, other in zip(index.flatten(), key.reshape(-1, RANK), position.reshape(-1, ROPE), strict=True):
        kv_cache[int(slot) // BLOCK, int(slot) % BLOCK, 0] = one
        kr_cache[int(slot) // BLOCK, int(slot) % BLOCK, 0] = other
    nothing = torch.zeros(1)
    return torch.stack(queries, -2), torch.stack(positions, -2), nothing, latent if query_norm else nothing, nothing
