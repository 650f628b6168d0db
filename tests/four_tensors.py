"""The program that the documentation of Ascend's TorchAir shows for streams within a graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import airgraph
from airgraph import ops, scope

__all__ = ["FourTensors"]


class FourTensors(nn.Module):
    """Two side streams, two events, a tensor that is recorded on a stream, a constant that is written."""

    def __init__(self, device: str = "cpu", size: int = 4) -> None:
        super().__init__()
        self.first, self.second = airgraph.Event("66"), airgraph.Event("77")
        self.register_buffer("constant", torch.ones(size, size, device=device))

    def forward(self, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, ...]:
        added = a + b
        self.first.record()
        with scope.stream("1"):
            self.first.wait()
            multiplied = added @ c
            ops.record_stream(added, "1")
            self.second.record()
        main = added @ d
        with scope.stream("2", priority=-1):
            self.second.wait()
            together = multiplied + a
        self.constant.add_(1)
        return multiplied, main, together, self.constant * 2
