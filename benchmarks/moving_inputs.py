"""Measure what a KV cache that moves costs: one cache, two by turns, and a new one for each request.

    moving_inputs.py [--rounds 40] [--turns 1000] [--requests 200]

A decode step of several attention layers takes its caches as arguments, through the cached door, on one thread. Prints
a table and writes benchmarks/results/moving-inputs-YYYY-MM-DD.json, with captures and eager calls of each way.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import measure
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import airgraph

RESULTS = Path(__file__).resolve().parent / "results"
LAYERS, HIDDEN, HEADS, LENGTH = 8, 64, 4, 128
Caches = list[tuple[Tensor, Tensor]]


class Decoder(nn.Module):
    """Attention layers of a decode step, their caches given: (x [1, 1, HIDDEN], position [1], caches) -> x."""

    def __init__(self) -> None:
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(HIDDEN, 3 * HIDDEN, bias=False) for _ in range(LAYERS))

    def step(self, x: Tensor, position: Tensor, caches: Caches) -> Tensor:
        for project, (keys, values) in zip(self.projections, caches, strict=True):
            query, key, value = project(x).view(1, 1, 3, HEADS, HIDDEN // HEADS).transpose(1, 3).unbind(2)
            keys.index_copy_(2, position, key)
            values.index_copy_(2, position, value)
            x = x + F.scaled_dot_product_attention(query, keys, values).transpose(1, 2).reshape(1, 1, HIDDEN)
        return x


def make_caches() -> Caches:
    shape = (1, HEADS, LENGTH, HIDDEN // HEADS)
    return [(torch.zeros(shape), torch.zeros(shape)) for _ in range(LAYERS)]


def counted(work: Callable[[], object]) -> dict[str, int]:
    """What the counters of the report say after the work, from zero."""
    airgraph.reset()
    work()
    counters: dict[str, int] = airgraph.explain().to_dict()["counters"]
    return counters


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40, help="blocks of calls of each way")
    parser.add_argument("--turns", type=int, default=1000, help="alternations of two caches that are counted")
    parser.add_argument("--requests", type=int, default=200, help="requests with caches of their own")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    decoder = Decoder().eval()
    x, position = torch.randn(1, 1, HIDDEN), torch.tensor([LENGTH - 1])
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        step = airgraph.inference.cache_compile(decoder.step, cache_dir=folder, dynamic=False)
        one, two = make_caches(), make_caches()
        by_turns = cycle((one, two))

        def requests() -> None:
            for _ in range(options.requests):
                step(x, position, make_caches())

        def turns() -> None:
            for _ in range(options.turns):
                step(x, position, next(by_turns))

        counters = {"two caches by turns": counted(turns), "a new cache for each request": counted(requests)}
        ways = [
            measure.Contender("one cache", lambda: step(x, position, one)),
            measure.Contender("two caches by turns", lambda: step(x, position, next(by_turns))),
        ]
        at = measure.circumstances(options.rounds)
        timings = measure.interleave(ways, rounds=options.rounds)
    ratio = timings["two caches by turns"].median_us / timings["one cache"].median_us
    body: dict[str, Any] = {
        "moving_inputs": {
            "description": f"{LAYERS} attention layers, hidden {HIDDEN}, KV cache {LENGTH}, {2 * LAYERS} cache tensors",
            "circumstances": at,
            "timings": {name: timing.to_dict() for name, timing in timings.items()},
            "ratio": round(ratio, 4),
            "counters": counters,
        }
    }
    table = Table(title="a KV cache that moves")
    for column in ("way", "µs a call", "spread", "captures", "eager calls"):
        table.add_column(column)
    for name, timing in timings.items():
        found = counters.get(name, {})
        shown = (str(found.get("captures", "")), str(found.get("eager_calls", "")))
        table.add_row(name, f"{timing.median_us:.1f}", f"{timing.iqr_us:.1f}", *shown)
    Console().print(table)
    Console().print(f"ratio {ratio:.3f}; {measure.write_json(RESULTS, 'moving-inputs', [1], body)}")


if __name__ == "__main__":
    main()
