"""What the tests of cached calls share: models, and how they are cached and compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import airgraph
from airgraph.cache.cached_function import CachedFunction

__all__ = ["MANY", "Decoder", "Mlp", "cached", "equal_to_eager", "settled"]

# By then, arguments that do not come with a call are compared at once.
MANY = 5


def cached(function: Callable[..., Any], folder: Path, **given: Any) -> CachedFunction:
    return airgraph.inference.cache_compile(function, cache_dir=folder, **{"strict": True, **given})


def equal_to_eager(call: CachedFunction, *calls: tuple[Any, ...]) -> None:
    for args in calls:
        torch.testing.assert_close(call(*args), call.__wrapped__(*args))


def settled(call: CachedFunction, *args: Any) -> Any:
    """Its door, which serves all calls by now."""
    for _ in range(MANY):
        call(*args)
    door: Any = call._entries[0].door
    served = door.calls
    call(*args)
    assert door.calls == served + 1
    return door


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.layers = nn.ModuleList([nn.Linear(8, 8)])
        self.factor = 2.0
        self.act = torch.relu

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.inner(x)) * self.factor
        for layer in self.layers:
            x = layer(x)
        return x


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8).requires_grad_(False)

    def step(self, x: Tensor, cache: Tensor, row: Tensor) -> Tensor:
        cache.index_copy_(0, row, self.project(x))
        return torch.softmax(cache, -1).sum(0)
