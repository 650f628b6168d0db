"""A model whose profile is looked at."""

import torch
from torch import Tensor, nn

import airgraph
from airgraph import scope

__all__ = ["Beside", "Chained"]


class Beside(nn.Module):
    """Writes an argument, draws random numbers, and computes on two streams."""

    def __init__(self) -> None:
        super().__init__()
        self.forked, self.done = airgraph.Event("forked"), airgraph.Event("done")
        self.side = nn.Linear(16, 16)

    def forward(self, x: Tensor, state: Tensor, rows: Tensor) -> Tensor:
        chosen = nn.functional.embedding(rows, x)
        self.forked.record()
        with scope.stream("side"):
            self.forked.wait()
            beside = self.side(chosen)
            self.done.record()
        main = chosen.sin() + torch.rand_like(chosen)
        state.add_(1)
        self.done.wait()
        return main + beside


class Chained(nn.Module):
    """A stream without work of its own passes on what it waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.made, self.passed_on = airgraph.Event("made"), airgraph.Event("passed on")

    def forward(self, x: Tensor) -> Tensor:
        with scope.stream("a"):
            made = x.sin()
            self.made.record()
        with scope.stream("b"):
            self.made.wait()
            self.passed_on.record()
        self.passed_on.wait()
        return made.cos()
