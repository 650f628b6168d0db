"""A model that is traced at the first start on a machine, and read from a file at all others.

python examples/cached_start.py [CACHE_FOLDER]
"""

import sys
import time

import torch

import airgraph


class Decoder(torch.nn.Module):
    """Writes its cache in place, as decoders of language models do."""

    def __init__(self, cache_dir: str | None) -> None:
        super().__init__()
        self.project = torch.nn.Linear(64, 64)
        self.step = airgraph.inference.cache_compile(self.step, cache_dir=cache_dir)

    def step(self, x: torch.Tensor, cache: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(0, row, self.project(x))
        return torch.softmax(x @ cache.T, dim=-1) @ cache


torch.manual_seed(0)
decoder = Decoder(sys.argv[1] if len(sys.argv) > 1 else None)
with torch.inference_mode():
    cache, x = torch.zeros(128, 64), torch.randn(1, 64)
    start = time.perf_counter()
    for row in range(8):
        x = decoder.step(x, cache, torch.tensor([row]))
        if row == 0:
            print(f"first step after {time.perf_counter() - start:.3f} s")
counts = decoder.step.counts()
print(f"traced {counts.traces} graphs, read {counts.files_read} from files")
