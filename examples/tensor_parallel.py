"""A tensor-parallel MLP: each rank has a part of the hidden layer, and a collective adds up the parts.

    torchrun --nproc-per-node 2 examples/tensor_parallel.py [cpu|cuda|npu]

The sum of one MLP's parts is on its way, on the stream "comm", while the next one is computed. Each rank compares with
the whole MLPs, computed on one rank.
"""

from __future__ import annotations

import os
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import Tensor, nn

import airgraph
from airgraph import scope

WIDTH, HIDDEN = 64, 256


class Mlp(nn.Module):
    """up: [hidden, width], down: [width, hidden], or a rank's part of the hidden layer."""

    def __init__(self, up: Tensor, down: Tensor) -> None:
        super().__init__()
        self.up, self.down = nn.Parameter(up), nn.Parameter(down)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.silu(x @ self.up.T) @ self.down.T


class Both(nn.Module):
    """Two MLPs on one input. The parts of the first are added up while the second is computed."""

    def __init__(self, first: Mlp, second: Mlp) -> None:
        super().__init__()
        self.first, self.second = first, second
        self.computed, self.sent = airgraph.Event("computed"), airgraph.Event("sent")

    def forward(self, x: Tensor) -> Tensor:
        part = self.first(x)
        self.computed.record()
        with scope.stream("comm"):
            self.computed.wait()
            first = collectives.all_reduce(part, "sum", dist.group.WORLD)
            self.sent.record()
        second = collectives.all_reduce(self.second(x), "sum", dist.group.WORLD)
        self.sent.wait()
        return first + second


def part_of(mlp: Mlp, rank: int, ranks: int) -> Mlp:
    return Mlp(mlp.up.chunk(ranks, 0)[rank].clone(), mlp.down.chunk(ranks, 1)[rank].clone())


@torch.no_grad()
def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    if device != "cpu":
        module = getattr(torch, device)
        module.set_device(int(os.environ["LOCAL_RANK"]) % module.device_count())
    dist.init_process_group({"cpu": "gloo", "cuda": "nccl", "npu": "hccl"}[device])
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_default_device(device)
    whole = [Mlp(torch.randn(HIDDEN, WIDTH) / 8, torch.randn(WIDTH, HIDDEN) / 16) for _ in range(2)]
    model = Both(*(part_of(each, rank, ranks) for each in whole))
    compiled = torch.compile(model, backend="airgraph", fullgraph=True)
    for rows in (1, 8, 1):
        x = torch.randn(rows, WIDTH)
        torch.testing.assert_close(compiled(x), sum(each(x) for each in whole))
    dist.barrier()
    if rank == 0:
        print(airgraph.explain())
        print(f"the same on {ranks} ranks as on one")
    dist.destroy_process_group()


if __name__ == "__main__":
    warnings.filterwarnings("ignore", module="torch")
    main()
