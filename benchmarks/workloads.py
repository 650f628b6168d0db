"""The four models the benchmarks replay: plain PyTorch, float32, random weights from fixed seeds.

- **a** a Llama-like decode step, batch 1, hidden 256, 4 layers, static KV cache of 128 positions;
- **b** the same with hidden 64 and 8 layers: the host's overhead dominates;
- **c** three Linear 64x64 with relu, batch 1: nearly nothing but overhead;
- **d** six encoder layers, hidden 256, sequence 64: nearly nothing but matrix products.

The decode steps write their cache at the position they are given. The benchmark calls them again and again
with one position, so every call overwrites one slot with the same numbers: repeated calls are idempotent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY = 512
CACHE_LENGTH = 128
POSITION = 100
SEED = 1234


@dataclass(frozen=True, slots=True)
class Workload:
    """A model in eval mode with the arguments of the call to time."""

    name: str
    description: str
    model: nn.Module
    args: tuple[Tensor, ...]


class RMSNorm(nn.Module):
    """Root-mean-square norm, spelled out in elementary operators as Llama's published code does."""

    def __init__(self, hidden: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding, half-split layout; x is [batch, heads, length, head size]."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class DecodeAttention(nn.Module):
    """Self-attention over a static cache that is written in place."""

    key_cache: Tensor
    value_cache: Tensor

    def __init__(self, hidden: int, heads: int, cache_length: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, hidden, bias=False)
        self.value = nn.Linear(hidden, hidden, bias=False)
        self.output = nn.Linear(hidden, hidden, bias=False)
        shape = (1, heads, cache_length, hidden // heads)
        self.register_buffer("key_cache", torch.randn(shape))
        self.register_buffer("value_cache", torch.randn(shape))

    def forward(self, x: Tensor, position: Tensor, mask: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, hidden = x.shape
        split = (batch, length, self.heads, hidden // self.heads)
        query = rotate(self.query(x).view(split).transpose(1, 2), cos, sin)
        key = rotate(self.key(x).view(split).transpose(1, 2), cos, sin)
        value = self.value(x).view(split).transpose(1, 2)
        self.key_cache.index_copy_(2, position, key)
        self.value_cache.index_copy_(2, position, value)
        mixed = F.scaled_dot_product_attention(query, self.key_cache, self.value_cache, attn_mask=mask)
        return self.output(mixed.transpose(1, 2).reshape(batch, length, hidden))


class DecodeLayer(nn.Module):
    """Pre-norm attention and SwiGLU feed-forward."""

    def __init__(self, hidden: int, heads: int, intermediate: int, cache_length: int) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(hidden)
        self.attention = DecodeAttention(hidden, heads, cache_length)
        self.mlp_norm = RMSNorm(hidden)
        self.gate = nn.Linear(hidden, intermediate, bias=False)
        self.up = nn.Linear(hidden, intermediate, bias=False)
        self.down = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x: Tensor, position: Tensor, mask: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), position, mask, cos, sin)
        y = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class DecodeStep(nn.Module):
    """One token of a Llama-like decoder: (token [1, 1], position [1]) -> logits [1, 1, vocabulary]."""

    cos: Tensor
    sin: Tensor
    slots: Tensor

    def __init__(self, hidden: int, layers: int, heads: int, cache_length: int = CACHE_LENGTH) -> None:
        super().__init__()
        intermediate = 16 * math.ceil(hidden * 8 / 3 / 16)
        self.embedding = nn.Embedding(VOCABULARY, hidden)
        self.layers = nn.ModuleList(DecodeLayer(hidden, heads, intermediate, cache_length) for _ in range(layers))
        self.norm = RMSNorm(hidden)
        self.head = nn.Linear(hidden, VOCABULARY, bias=False)
        head_size = hidden // heads
        frequencies = 10000.0 ** (-torch.arange(0, head_size, 2) / head_size)
        angles = torch.outer(torch.arange(cache_length), frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("slots", torch.arange(cache_length))

    def forward(self, token: Tensor, position: Tensor) -> Tensor:
        x = self.embedding(token)
        cos = self.cos.index_select(0, position)
        sin = self.sin.index_select(0, position)
        # Additive and made once: a boolean mask would be converted in every layer, to eager's disadvantage.
        mask = torch.zeros_like(self.slots, dtype=x.dtype).masked_fill(self.slots > position, -math.inf)
        for layer in self.layers:
            x = layer(x, position, mask.view(1, 1, 1, -1), cos, sin)
        return self.head(self.norm(x))


class Perceptron(nn.Module):
    """Linear and relu, several times."""

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.relu(layer(x))
        return x


class EncoderLayer(nn.Module):
    """Pre-norm bidirectional attention and GELU feed-forward."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(hidden)
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, hidden)
        self.mlp_norm = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, hidden = x.shape
        split = (batch, length, self.heads, hidden // self.heads)
        y = self.attention_norm(x)
        query, key, value = (f(y).view(split).transpose(1, 2) for f in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(query, key, value)
        x = x + self.output(mixed.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x))))


class Encoder(nn.Module):
    """A stack of encoder layers: [batch, length, hidden] -> the same shape."""

    def __init__(self, hidden: int, layers: int, heads: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


def _decode(name: str, hidden: int, layers: int, heads: int) -> Workload:
    return Workload(
        name,
        f"Llama-like decode step, batch 1, hidden {hidden}, {layers} layers, KV cache {CACHE_LENGTH}",
        DecodeStep(hidden, layers, heads).eval(),
        (torch.tensor([[7]]), torch.tensor([POSITION])),
    )


def _perceptron() -> Workload:
    model = Perceptron(hidden=64, layers=3).eval()
    return Workload("c", "three Linear 64x64 + relu, batch 1", model, (torch.randn(1, 64),))


def _encoder() -> Workload:
    model = Encoder(hidden=256, layers=6, heads=4).eval()
    return Workload("d", "six encoder layers, hidden 256, sequence 64", model, (torch.randn(1, 64, 256),))


_MAKERS: dict[str, Callable[[], Workload]] = {
    "a": lambda: _decode("a", hidden=256, layers=4, heads=4),
    "b": lambda: _decode("b", hidden=64, layers=8, heads=4),
    "c": _perceptron,
    "d": _encoder,
}
NAMES = tuple(_MAKERS)


def make(name: str) -> Workload:
    """Build one workload; the same name gives the same numbers in every process.

    name: one of NAMES. Raises KeyError for any other. Leaves torch's random generator seeded.
    """
    maker = _MAKERS[name]
    torch.manual_seed(SEED)
    return maker()
