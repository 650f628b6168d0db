"""Measure what a KV cache that moves costs: one cache, two by turns, and a new one for each request.

    moving_inputs.py [--rounds 40] [--turns 1000] [--requests 200] [--smollm2]

A decode step of several attention layers takes its caches as arguments, through the cached door, on one thread.
With --smollm2 also SmolLM2 through torch.compile: its decode step with two StaticCaches by turns, and `generate()` with
a new StaticCache each time. Prints tables and writes benchmarks/results/moving-inputs-YYYY-MM-DD.json, with captures
and eager calls of each way.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from time import perf_counter
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


def of_smollm2(turns: int, requests: int) -> dict[str, Any]:
    """Two caches by turns and new caches for each request, each against one cache; the ways take turns."""
    import smollm2
    from transformers import StaticCache

    model, prompt = smollm2.load(), smollm2.prompt_ids()
    length = prompt.shape[1]
    token = torch.tensor([[42]])
    compiled = torch.compile(model.forward, backend="airgraph", dynamic=False, fullgraph=True)

    def make() -> Any:
        return StaticCache(config=model.config, max_cache_len=64)

    def step(cache: Any) -> float:
        for layer in cache.layers:
            layer.cumulative_length.fill_(length)
        start = perf_counter()
        compiled(token, past_key_values=cache, use_cache=True)
        return (perf_counter() - start) * 1e6

    def generate(cache: Any) -> tuple[float, list[int]]:
        start = perf_counter()
        tokens = model.generate(prompt, past_key_values=cache, max_new_tokens=4, do_sample=False)
        return (perf_counter() - start) * 1e6, tokens[0].tolist()

    caches = [make() for _ in range(3)]
    for cache in caches:
        model(prompt, past_key_values=cache, use_cache=True)
    one, *two = caches
    step(one)
    airgraph.reset()
    step(one)
    steps: dict[str, list[float]] = {"one cache": [], "two caches by turns": []}
    for number in range(turns):
        steps["one cache"].append(step(one))
        steps["two caches by turns"].append(step(two[number % 2]))
    in_steps = airgraph.explain().to_dict()["counters"]

    model.forward = compiled
    kept = make()
    _, expected = generate(kept)
    generate(make())
    airgraph.reset()
    requested: dict[str, list[float]] = {"one cache": [], "a new cache for each request": []}
    for _ in range(requests):
        kept.reset()
        for way, cache in (("one cache", kept), ("a new cache for each request", make())):
            micros, tokens = generate(cache)
            assert tokens == expected
            requested[way].append(micros)
    in_requests = airgraph.explain().to_dict()["counters"]
    return {"decode step": compared(steps, in_steps), "generate, 4 tokens": compared(requested, in_requests)}


def compared(samples: dict[str, list[float]], counters: dict[str, int]) -> dict[str, Any]:
    """Of two ways, whose calls were counted together."""
    timings = {name: measure.summarise(values, 1) for name, values in samples.items()}
    one, moving = (timing.median_us for timing in timings.values())
    return {
        "timings": {name: timing.to_dict() for name, timing in timings.items()},
        "ratio": round(moving / one, 4),
        "counters": counters,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40, help="blocks of calls of each way")
    parser.add_argument("--turns", type=int, default=1000, help="alternations of two caches that are counted")
    parser.add_argument("--requests", type=int, default=200, help="requests with caches of their own")
    parser.add_argument("--smollm2", action="store_true", help="also SmolLM2")
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
    if options.smollm2:
        with torch.no_grad():
            body["smollm2"] = of_smollm2(options.turns, options.requests)
        for name, row in body["smollm2"].items():
            Console().print(f"SmolLM2, {name}: ratio {row['ratio']:.3f}, {row['counters']}", highlight=False)
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
