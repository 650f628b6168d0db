"""What tests of moving inputs call, and how many captures that may take."""

import torch
from reports import counters
from torch import Tensor

# How many captures of one key two addresses by turns may take.
_MOST = {"cpu": 1}


def step(cache: Tensor, row: Tensor, x: Tensor) -> Tensor:
    cache.index_copy_(0, row, x)
    return torch.softmax(cache * 2, -1).sum(0)


def increment(prompt: Tensor) -> Tensor:
    return prompt * 0.5 + 1


def args_of(device: str, call: int, rows: int = 4) -> tuple[Tensor, Tensor]:
    """The row and the values that a step writes to a cache of so many rows."""
    return torch.tensor([call % rows], device=device), torch.full((1, 3), float(call), device=device)


def few_captures(device: str, recaptures: bool = False) -> None:
    found = counters()
    assert found["eager_calls"] == 0
    assert found["captures"] <= _MOST.get(device, 4), found
    if device == "cpu":
        assert found["recaptures"] == 0
