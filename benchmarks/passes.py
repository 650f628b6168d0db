"""Measure what the FX passes save: time of a decode step with a large KV cache, bytes of arenas, time of the passes.

    passes.py [--rounds 20] [--only cache,cats,arenas,compile] [--update]

cache: a decode step with a KV cache of 2 x 8 x [1, 8, 8192, 64], eager against input_inplace_pass on and off.
cats: models that join what they compute, with remove_cat_ops on and off.
arenas: bytes of the arena with inplace_pass on and off. compile: the share of passes in compiling a 32-layer Llama.
Prints tables and writes benchmarks/results/passes-YYYY-MM-DD.json.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import measure
import torch
import workloads
from measure import Contender
from memory import Llama, compiled, forget, small_llama
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

import airgraph
import airgraph.backend
from airgraph.capture import preparation
from airgraph.capture.ledger import ledger

RESULTS = Path(__file__).resolve().parent / "results"
LAYERS, CACHE = 8, (1, 8, 8192, 64)
console = Console()
console.width = max(console.width, 120)


class CacheStep(nn.Module):
    """Writes one position of every layer's keys and values, and attends to the first 512."""

    def forward(self, x: Tensor, position: Tensor, *caches: Tensor) -> Tensor:
        for keys, values in zip(caches[::2], caches[1::2], strict=True):
            keys.index_copy_(2, position, x)
            values.index_copy_(2, position, x * 0.5)
            x = F.scaled_dot_product_attention(x, keys[:, :, :512], values[:, :, :512])
        return x


def cache(rounds: int) -> dict[str, Any]:
    step = CacheStep()
    x, position = torch.randn(1, 8, 1, 64), torch.tensor([100])
    contenders, rows = [], {}
    for name, options in (
        ("eager", None),
        ("on", {"input_inplace_pass": True}),
        ("off", {"input_inplace_pass": False}),
    ):
        caches = [torch.zeros(CACHE) for _ in range(2 * LAYERS)]
        if options is None:
            run: Callable[..., Any] = step
        else:
            torch._dynamo.reset()
            run = torch.compile(step, backend="airgraph", fullgraph=True, options=options)
        expected = step(x, position, *[torch.zeros(CACHE) for _ in range(2 * LAYERS)])
        torch.testing.assert_close(run(x, position, *caches), expected)
        if options is not None:
            (graphed,) = [c for c in ledger.callables if c.captures and c._options.input_inplace_pass == (name == "on")]
            (row,) = [r for r in airgraph.explain().to_dict()["graphs"] if r["name"] == graphed._program.name]
            targets = [str(n.target) for n in graphed._program.gm.graph.nodes if _is_cache_sized(n)]
            rows[name] = {
                "operators_that_make_or_copy_a_cache": sum("index_copy_." not in t for t in targets),
                "copied_nbytes_a_call": row["copied_nbytes"],
                "arena_nbytes": graphed.captures[0].device_graph.footprint.arena_nbytes,
            }
        contenders.append(Contender(name, run, (x, position, *caches), torch.inference_mode))
    timings = measure.interleave(contenders, rounds=rounds)
    return {
        "description": f"decode step, {2 * LAYERS} caches of {list(CACHE)}, attention to 512 positions",
        "timings": {name: timing.to_dict() for name, timing in timings.items()},
        "captures": rows,
        "speedup_over_off": round(timings["off"].median_us / timings["on"].median_us, 2),
        "speedup_over_eager": round(timings["eager"].median_us / timings["on"].median_us, 3),
    }


def _is_cache_sized(node: torch.fx.Node) -> bool:
    """Whether an operator gives a tensor as large as a cache that is not a view."""
    value = node.meta.get("val")
    is_operator = isinstance(node.target, torch._ops.OpOverload) and not node.target.is_view
    return is_operator and isinstance(value, Tensor) and tuple(value.shape) == CACHE


class Rotary(nn.Module):
    """Rotary embeddings of the queries and keys of one layer."""

    def forward(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        return q * cos + self.rotated(q) * sin, k * cos + self.rotated(k) * sin

    @staticmethod
    def rotated(x: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        return torch.cat([-second, first], -1)


class DenseBlock(nn.Module):
    """Each layer takes what all before it gave."""

    def __init__(self, width: int = 32, layers: int = 8) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width * (i + 1), width) for i in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x).relu()], -1)
        return x


Case = tuple[str, nn.Module, tuple[Tensor, ...]]


def models_with_cats() -> list[Case]:
    def rotary(length: int) -> tuple[Tensor, ...]:
        shapes = (1, 9, length, 64), (1, 3, length, 64), (length, 64), (length, 64)
        return tuple(torch.randn(shape) for shape in shapes)

    torch.manual_seed(0)
    return [
        ("rotary embedding, one token", Rotary(), rotary(1)),
        ("rotary embedding, 256 tokens", Rotary(), rotary(256)),
        ("dense block of 8 layers, batch 4", DenseBlock().eval(), (torch.randn(4, 32),)),
        ("dense block of 8 layers, batch 2048", DenseBlock().eval(), (torch.randn(2048, 32),)),
    ]


def cats(rounds: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, model, args in models_with_cats():
        forget()
        contenders = []
        for on in (True, False):
            # Row programs would compute the cat with its parts.
            options = {"remove_cat_ops": on, "kernels": "exact"}
            # A function of its own, since Dynamo keeps what it compiles by the code.
            run = torch.compile(copy.deepcopy(model), backend="airgraph", fullgraph=True, options=options)
            torch.testing.assert_close(run(*args), model(*args))
            contenders.append(Contender("on" if on else "off", run, args, torch.inference_mode))
        timings = measure.interleave(contenders, rounds=rounds)
        rows = airgraph.explain().to_dict()["graphs"]
        found[name] = {
            "timings": {each: timing.to_dict() for each, timing in timings.items()},
            "copied_nbytes_a_call": {"on": rows[0]["copied_nbytes"], "off": rows[1]["copied_nbytes"]},
            "footprint_nbytes": {"on": rows[0]["nbytes"], "off": rows[1]["nbytes"]},
        }
    return found


def arenas() -> dict[str, Any]:
    found: dict[str, Any] = {}
    cases: list[Case] = [
        (f"workload {name}", w.model, w.args) for name, w in ((n, workloads.make(n)) for n in workloads.NAMES)
    ]
    cases += [(f"Llama, batch {batch}", small_llama(), small_llama().arguments(batch)) for batch in (1, 8, 64)]
    caches = tuple(torch.zeros(CACHE) for _ in range(2 * LAYERS))
    cases += [
        *models_with_cats(),
        ("KV cache step", CacheStep(), (torch.randn(1, 8, 1, 64), torch.tensor([1]), *caches)),
    ]
    for name, model, args in cases:
        found[name] = {}
        for on in (True, False):
            forget()
            compiled(model, inplace_pass=on)(*args)
            (graph,) = [g for c in ledger.callables for g in c.captures]
            found[name]["on" if on else "off"] = graph.device_graph.footprint.arena_nbytes
    return found


def compile_time() -> dict[str, Any]:
    forget()
    torch.manual_seed(0)
    model = Llama(64, layers=32, heads=4, kv_heads=4, intermediate=128, vocabulary=1000).eval()
    spent: list[float] = []
    original = preparation.run_passes

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            spent.append(perf_counter() - start)

    preparation.run_passes = timed
    try:
        start = perf_counter()
        compiled(model)(*model.arguments(2))
        whole = perf_counter() - start
    finally:
        preparation.run_passes = original
    return {
        "description": "first call of a 32-layer Llama decode step, batch 2",
        "whole_s": round(whole, 3),
        "passes_s": round(sum(spent), 3),
        "share": round(sum(spent) / whole, 4),
        "passes": airgraph.explain().to_dict()["passes"],
    }


SECTIONS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "cache": lambda options: cache(options.rounds),
    "cats": lambda options: cats(options.rounds),
    "arenas": lambda _: arenas(),
    "compile": lambda _: compile_time(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, separated by commas")
    parser.add_argument("--update", action="store_true", help="measure part anew, keep the rest of today's file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    body: dict[str, Any] = {}
    for name in options.only.split(","):
        with torch.no_grad():
            body[name] = {"measured": measure.circumstances(options.rounds), **SECTIONS[name](options)}
        table = Table(name, "")
        for key, value in body[name].items():
            table.add_row(key, str(value))
        console.print(table)
    if options.update:
        body = {k: v for k, v in measure.read_json(RESULTS, "passes").items() if k in SECTIONS} | body
    console.print(str(measure.write_json(RESULTS, "passes", [1], body)))


if __name__ == "__main__":
    main()
