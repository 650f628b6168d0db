"""Products by kernels of our own, on weights that are kept in panels, and by eager's: microseconds each in a graph.

    products.py [--threads 1,2] [--rounds 15]

A compiled function multiplies one input by weights of its own, as layers do; the time is that of a call divided by
their number. Where rows are few there are 128 MB of weights, so that they come from memory, else 16 of them. The
contenders are `kernels="fast"`, the same with each weight read at one place where it would be read at several, the
same with `pack_weights=True` where products have many rows, `kernels="exact"`, and eager. What was measured at
capture is in the JSON too. Prints a table and writes benchmarks/results/products-YYYY-MM-DD.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measure
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import airgraph
from airgraph.runtime.engine.loading import engine

RESULTS = Path(__file__).resolve().parent / "results"
LAYERS = 16
FROM_MEMORY = 128 << 20
WAYS = ("fast", "one place", "packed", "exact", "eager")
Multiply = Callable[[Tensor, nn.Module], Tensor]


@dataclass(frozen=True, slots=True)
class Case:
    """multiply: the input by what a layer holds. has_few_rows: and so waits for memory. has_places: see "one place"."""

    description: str
    x: Tensor
    layer: Callable[[], nn.Module]
    multiply: Multiply
    may_be_packed: bool = False
    has_few_rows: bool = True
    has_places: bool = False


class Held(nn.Module):
    """Tensors of a quantised weight, as buffers."""

    def __init__(self, **tensors: Tensor) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)


class Layers(nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.multiply = case.multiply
        first = case.layer()
        nbytes = sum(each.nbytes for each in (*first.parameters(), *first.buffers()))
        count = FROM_MEMORY // nbytes if case.has_few_rows else LAYERS
        self.layers = nn.ModuleList([first, *(case.layer() for _ in range(count - 1))])

    def forward(self, x: Tensor) -> list[Tensor]:
        return [self.multiply(x, layer) for layer in self.layers]


def linear(x: Tensor, layer: Any) -> Tensor:
    return F.linear(x, layer.weight, layer.bias)


def int8(x: Tensor, layer: Any) -> Tensor:
    return F.linear(x, layer.numbers.to(x.dtype)) * layer.scale


def groups(x: Tensor, layer: Any) -> Tensor:
    n, count = layer.scale.shape
    numbers = layer.numbers.view(n, count, -1).to(x.dtype) - layer.zero.view(n, count, 1).to(x.dtype)
    return F.linear(x, (numbers * layer.scale.view(n, count, 1)).view(n, -1))


def ints(x: Tensor, layer: Any) -> Tensor:
    return torch._int_mm(x, layer.numbers.t())


def cases() -> dict[str, Case]:
    bf16 = torch.bfloat16

    def many(rows: int, k: int, n: int) -> Case:
        what = f"float32, {rows} rows, {k} to {n}"
        return Case(what, torch.randn(rows, k), lambda: nn.Linear(k, n), linear, may_be_packed=True, has_few_rows=False)

    def few(description: str, dtype: torch.dtype, rows: int = 1, bias: bool = False) -> Case:
        x = torch.randn(rows, 576).to(dtype)

        def layer() -> nn.Module:
            return nn.Linear(576, 1536, bias=bias, dtype=dtype)

        return Case(description, x, layer, linear, has_places=True)

    def numbers(low: int) -> Tensor:
        return torch.randint(low, -low, (1536, 576), dtype=torch.int8)

    def quantised() -> nn.Module:
        return Held(numbers=numbers(-128), scale=torch.rand(1536).to(bf16))

    def grouped() -> nn.Module:
        zero = torch.zeros(1536, 18, dtype=torch.int8)
        return Held(numbers=numbers(-8), scale=torch.rand(1536, 18).to(bf16), zero=zero)

    one = torch.randn(1, 576).to(bf16)
    whole = torch.randint(-128, 128, (1, 576), dtype=torch.int8)
    return {
        "f32": few("float32, 1 row, 576 to 1536", torch.float32),
        "f32 bias": few("the same with a bias", torch.float32, bias=True),
        "f32 8 rows": few("float32, 8 rows, 576 to 1536", torch.float32, 8),
        "bf16": few("bfloat16, 1 row, 576 to 1536", bf16),
        "bf16 4 rows": few("bfloat16, 4 rows, 576 to 1536", bf16, 4),
        "f16": few("float16, 1 row, 576 to 1536", torch.float16),
        "int8": Case("bfloat16 with int8, 1 row, the same", one, quantised, int8, has_places=True),
        "int4 groups": Case("bfloat16 with int4 by groups of 32, the same", one, grouped, groups),
        "int8 int8": Case("int8 with int8, the same", whole, quantised, ints),
        **{f"{rows} rows": many(rows, 384, 1536) for rows in (12, 32, 64, 128)},
        "back": many(64, 1536, 384),
        "small": many(64, 256, 256),
    }


def timed(case: Case, rounds: int) -> dict[str, Any]:
    torch._dynamo.reset()
    airgraph.reset()
    model = Layers(case).eval()
    settings: dict[str, dict[str, Any]] = {"fast": {}, "exact": {"kernels": "exact"}}
    if case.may_be_packed:
        settings["packed"] = {"pack_weights": True}
    if case.has_places and engine().reads_several_places():
        # Other options than those of "fast", or Dynamo would take that graph.
        settings["one place"] = {"capture_limit": 63}
    ways: dict[str, Callable[..., Any]] = {"eager": model}
    expected = model(case.x)
    for name, options in settings.items():
        engine().read_several_places(False if name == "one place" else None)
        ways[name] = torch.compile(model, backend="airgraph", fullgraph=True, dynamic=False, options=options)
        # Captured here.
        out = ways[name](case.x)
        torch.testing.assert_close(out, expected, rtol=5e-2, atol=5e-1, msg=f"{name}: {case.description}")
    engine().read_several_places(None)
    report = airgraph.explain()
    found = measure.interleave([measure.Contender(name, way, (case.x,)) for name, way in ways.items()], rounds=rounds)
    times = len(model.layers)
    us = {name: [round(part / times, 3) for part in (t.median_us, t.q1_us, t.q3_us)] for name, t in found.items()}
    return {
        "description": case.description,
        "weights": times,
        "median_q1_q3_us": us,
        "measured_at_capture": report.to_dict()["products"],
        "packed_nbytes": report.packed_nbytes,
    }


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default="1,2", help="numbers of threads, by commas (default: 1,2)")
    parser.add_argument("--rounds", type=int, default=15, help="blocks of calls of each contender (default: 15)")
    options = parser.parse_args()
    threads = [int(each) for each in options.threads.split(",")]
    torch.manual_seed(0)
    circumstances = measure.circumstances(options.rounds)
    found = {}
    for count in threads:
        torch.set_num_threads(count)
        found[str(count)] = {name: timed(case, options.rounds) for name, case in cases().items()}
        table = Table(title=f"µs each, {count} threads", title_justify="left")
        for column in ("what", *WAYS):
            table.add_column(column)
        for row in found[str(count)].values():
            times = row["median_q1_q3_us"]
            table.add_row(row["description"], *(f"{times[way][0]:.1f}" if way in times else "" for way in WAYS))
        Console().print(table)
    path = measure.write_json(RESULTS, "products", threads, {"measured": circumstances, "products": found})
    Console().print(f"wrote {path}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
