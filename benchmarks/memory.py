"""Measure what graphs of many shapes take, and what looking after their memory costs.

    memory.py [--rounds 60] [--only sharing,models,arena,captures,checks] [--quick] [--update]

sharing: pool bytes of a Llama decode step captured at batch 1, 2, 4, ... 64, in three orders, with and without sharing.
models: two models in one explicit pool. arena: the plan's peak against the lower bound. captures: 64 captures of a
decode step of SmolLM2's shapes. checks: time of replays with all checks, and of single checks.
Prints tables and writes benchmarks/results/memory-YYYY-MM-DD.json.
"""

from __future__ import annotations

import argparse
import gc
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import measure
import torch
import workloads
from measure import Contender
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F
from workloads import RMSNorm, rotate

import airgraph
from airgraph.capture.ledger import ledger
from airgraph.memory.plan import lower_bound
from airgraph.runtime.engine.loading import engine

RESULTS = Path(__file__).resolve().parent / "results"
BATCHES = (1, 2, 4, 8, 16, 32, 64)
CACHE_LENGTH = 128
console = Console()
console.width = max(console.width, 120)
notes = Console(stderr=True)


class Layer(nn.Module):
    """Pre-norm attention over a cache that is an argument, and SwiGLU feed-forward."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, intermediate: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, hidden // heads
        self.attention_norm, self.mlp_norm = RMSNorm(hidden), RMSNorm(hidden)
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, kv_heads * self.size, bias=False)
        self.value = nn.Linear(hidden, kv_heads * self.size, bias=False)
        self.output = nn.Linear(hidden, hidden, bias=False)
        self.gate = nn.Linear(hidden, intermediate, bias=False)
        self.up = nn.Linear(hidden, intermediate, bias=False)
        self.down = nn.Linear(intermediate, hidden, bias=False)

    def forward(
        self, x: Tensor, keys: Tensor, values: Tensor, position: Tensor, mask: Tensor, cos: Tensor, sin: Tensor
    ) -> Tensor:
        batch = x.shape[0]
        y = self.attention_norm(x)
        query = rotate(self.query(y).view(batch, 1, self.heads, self.size).transpose(1, 2), cos, sin)
        key = rotate(self.key(y).view(batch, 1, self.kv_heads, self.size).transpose(1, 2), cos, sin)
        value = self.value(y).view(batch, 1, self.kv_heads, self.size).transpose(1, 2)
        keys.index_copy_(2, position, key)
        values.index_copy_(2, position, value)
        mixed = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=True)
        x = x + self.output(mixed.transpose(1, 2).reshape(batch, 1, -1))
        y = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """A decode step: (token [batch, 1], position [1], caches of keys and values) -> logits [batch, 1, vocabulary]."""

    def __init__(
        self, hidden: int, layers: int, heads: int, kv_heads: int, intermediate: int, vocabulary: int = 32_000
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads, kv_heads, intermediate) for _ in range(layers))
        self.norm = RMSNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        size = hidden // heads
        angles = torch.outer(torch.arange(CACHE_LENGTH), 10000.0 ** (-torch.arange(0, size, 2) / size)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("places", torch.arange(CACHE_LENGTH))

    def forward(self, token: Tensor, position: Tensor, *caches: Tensor) -> Tensor:
        x = self.embedding(token)
        cos, sin = self.cos.index_select(0, position), self.sin.index_select(0, position)
        mask = torch.zeros_like(self.places, dtype=x.dtype).masked_fill(self.places > position, -math.inf)
        for layer, keys, values in zip(self.layers, caches[::2], caches[1::2], strict=True):
            x = layer(x, keys, values, position, mask.view(1, 1, 1, -1), cos, sin)
        return self.head(self.norm(x))

    def arguments(self, batch: int) -> tuple[Tensor, ...]:
        first = self.layers[0]
        shape = (batch, first.kv_heads, CACHE_LENGTH, first.size)
        caches = [torch.zeros(shape) for _ in range(2 * len(self.layers))]
        return torch.arange(batch).view(batch, 1), torch.tensor([5]), *caches


def small_llama(seed: int = 0, hidden: int = 256) -> Llama:
    torch.manual_seed(seed)
    return Llama(hidden, layers=4, heads=8, kv_heads=4, intermediate=4 * hidden).eval()


def smollm2_shapes() -> Llama:
    torch.manual_seed(0)
    return Llama(576, layers=30, heads=9, kv_heads=3, intermediate=1536, vocabulary=49_152).eval()


def forget() -> None:
    torch._dynamo.reset()
    airgraph.reset()


def compiled(model: nn.Module, **options: Any) -> Callable[..., Tensor]:
    return torch.compile(model, backend="airgraph", dynamic=True, fullgraph=True, options=options)


def pool_nbytes() -> int:
    return sum(pool["nbytes"] for pool in airgraph.explain().to_dict()["pools"])


def largest_capture() -> int:
    return max(row["nbytes"] for row in airgraph.explain().to_dict()["graphs"])


def captured_at(model: Llama, batches: Sequence[int], **options: Any) -> dict[str, int]:
    """Bytes after a call at each batch, every call compared with eager."""
    forget()
    run = compiled(model, **options)
    for batch in batches:
        ours, theirs = model.arguments(batch), model.arguments(batch)
        torch.testing.assert_close(run(*ours), model(*theirs), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(ours[2:], theirs[2:], rtol=1e-4, atol=1e-4)
    return {"pools_nbytes": pool_nbytes(), "largest_capture_nbytes": largest_capture()}


def sharing() -> dict[str, Any]:
    model = small_llama()
    shuffled = list(BATCHES)
    random.Random(1).shuffle(shuffled)
    orders = {"ascending": BATCHES, "descending": BATCHES[::-1], "random": tuple(shuffled)}
    rows: dict[str, Any] = {}
    for name, batches in orders.items():
        found = captured_at(model, batches)
        rows[name] = {**found, "ratio": round(found["pools_nbytes"] / found["largest_capture_nbytes"], 4)}
    alone = [captured_at(model, [batch])["pools_nbytes"] for batch in BATCHES]
    rows["not shared"] = {
        **captured_at(model, BATCHES, reuse_graph_pool_in_same_fx=False),
        "sum_of_single_captures_nbytes": sum(alone),
    }
    return {"description": "4-layer Llama decode step, batch 1 to 64", "batches": list(BATCHES), "orders": rows}


def models() -> dict[str, Any]:
    forget()
    pool = airgraph.graph_pool_handle()
    members = [small_llama(seed=1), small_llama(seed=2, hidden=320)]
    runs = [compiled(model, use_graph_pool=pool) for model in members]
    for batch in BATCHES:
        for model, run in zip(members, runs, strict=True):
            torch.testing.assert_close(
                run(*model.arguments(batch)), model(*model.arguments(batch)), rtol=1e-4, atol=1e-4
            )
    largest = largest_capture()
    return {
        "description": "two 4-layer Llamas (hidden 256 and 320) at batch 1 to 64 in one explicit pool",
        "pool_nbytes": pool.nbytes,
        "largest_capture_nbytes": largest,
        "sum_of_captures_nbytes": sum(row["nbytes"] for row in airgraph.explain().to_dict()["graphs"]),
        "ratio": round(pool.nbytes / largest, 4),
    }


def arena() -> dict[str, Any]:
    """Of each model: the peak of the plan, the lower bound for the arena alone, and for outputs and inputs with it."""
    found: dict[str, Any] = {}
    cases: list[tuple[str, nn.Module, tuple[Tensor, ...]]] = [
        (f"Llama, batch {batch}", small_llama(), small_llama().arguments(batch)) for batch in (1, 8, 64)
    ]
    cases += [(f"workload {name}", w.model, w.args) for name, w in ((n, workloads.make(n)) for n in workloads.NAMES)]
    for name, model, args in cases:
        forget()
        compiled(model)(*args)
        (graph,) = [g for c in ledger.callables for g in c.captures]
        device_graph = graph.device_graph
        arena = device_graph.arena
        bound = lower_bound(arena.lifetimes, arena.order)
        whole = lower_bound([*arena.lifetimes, *arena.edges], arena.order)
        found[name] = {
            "arena_nbytes": device_graph.footprint.arena_nbytes,
            "arena_lower_bound_nbytes": bound,
            "arena_ratio": round(arena.plan.peak / bound, 4),
            "capture_nbytes": device_graph.footprint.nbytes,
            "capture_lower_bound_nbytes": whole,
            "capture_ratio": round(device_graph.footprint.nbytes / whole, 4),
        }
    return found


def captures(count: int) -> dict[str, Any]:
    forget()
    model = smollm2_shapes()
    run = compiled(model, capture_limit=2 * count)
    run(*model.arguments(2))
    collections: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and not gc.isenabled():
            collections.append(info["generation"])

    calls = [model.arguments(batch) for batch in range(3, 3 + count)]
    gc.callbacks.append(note)
    start = perf_counter()
    result = airgraph.warmup(run, calls)
    elapsed_s = perf_counter() - start
    gc.callbacks.remove(note)
    rows = airgraph.explain().to_dict()["graphs"][-count:]
    return {
        "description": "decode step of SmolLM2-135M's shapes, random weights, batch 3 to 66, by airgraph.warmup",
        "captures": result.captured,
        "elapsed_s": round(elapsed_s, 3),
        "ms_a_capture": round(sum(row["capture_ms"] for row in rows) / count, 2),
        "nodes": rows[0]["nodes"],
        "garbage_collections_within": len(collections),
        "pools_nbytes": pool_nbytes(),
        "largest_capture_nbytes": largest_capture(),
        "sum_of_captures_nbytes": sum(row["nbytes"] for row in rows),
    }


def checks(rounds: int) -> dict[str, Any]:
    forget()
    workload = workloads.make("b")
    torch.compile(workload.model, backend="airgraph")(*workload.args)
    (graphed,) = [c for c in ledger.callables if c.captures]
    (graph,) = graphed.captures
    args = arguments_of(workload)
    # The whole call, its lock and key included, against the tape alone.
    call, replay = graphed.call, graph.device_graph._assembled.tape.replay
    native = engine()
    empty, checking = launch_of_nothing(), launch_of_nothing()
    hundred = [torch.zeros(4) for _ in range(100)]
    for index, tensor in enumerate(hundred):
        checking.add_placed_input(
            index=index,
            like=tensor,
            is_formed=False,
            strides=native.Strides.elements,
            with_offset=False,
            with_storage=False,
        )
    outputs = {policy: launch_of_outputs(64, policy) for policy in ("preserve", "overwrite")}
    contenders = [
        Contender("replay with all checks", call, tuple(args)),
        Contender("replay without", replay),
        Contender("launch of nothing", empty.run, (hundred,)),
        Contender("launch of nothing, 100 addresses checked", checking.run, (hundred,)),
        Contender("64 outputs, preserve", outputs["preserve"].run, ([],)),
        Contender("64 outputs, overwrite", outputs["overwrite"].run, ([],)),
    ]
    with torch.inference_mode():
        timings = measure.interleave(contenders, rounds=rounds)
    us = {name: timing.median_us for name, timing in timings.items()}
    return {
        "timings": {name: timing.to_dict() for name, timing in timings.items()},
        "ratio_with_all_checks": round(us["replay with all checks"] / us["replay without"], 4),
        "us_for_100_addresses": round(us["launch of nothing, 100 addresses checked"] - us["launch of nothing"], 4),
        "ns_an_output_not_held": round((us["64 outputs, preserve"] - us["64 outputs, overwrite"]) / 64 * 1000, 2),
    }


def arguments_of(workload: workloads.Workload) -> list[Any]:
    """What the captured graph of a workload is called with, as Dynamo calls it."""
    seen: list[list[Any]] = []
    (graphed,) = [c for c in ledger.callables if c.captures]
    (graph,) = graphed.captures
    original = type(graph.device_graph).run

    def spy(self: Any, args: list[Any]) -> Any:
        seen.append(list(args))
        return original(self, args)

    type(graph.device_graph).run = spy  # type: ignore[method-assign]
    try:
        torch.compile(workload.model, backend="airgraph")(*workload.args)
    finally:
        type(graph.device_graph).run = original  # type: ignore[method-assign]
    return seen[0]


def launch_of_nothing(policy: str = "preserve") -> Any:
    native = engine()
    kept = getattr(native.LiveOutputs, policy)
    return native.Launch(
        tape=native.Tape(),
        policy=kept,
        neighbours=native.Neighbours(),
        replay_lock=native.ReplayLock(),
        name="nothing",
        follows=False,
    )


def launch_of_outputs(count: int, policy: str) -> Any:
    native = engine()
    launch = launch_of_nothing(policy)
    for _ in range(count):
        storage = launch.add_output_storage(native.bytes_at(0, 64))
        launch.add_output(
            storage=storage, dtype=torch.float32, sizes=[16], strides=[1], offset=0, conj=False, neg=False
        )
    return launch


SECTIONS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "sharing": lambda _: sharing(),
    "models": lambda _: models(),
    "arena": lambda _: arena(),
    "captures": lambda options: captures(8 if options.quick else 64),
    "checks": lambda options: checks(options.rounds),
}


def show(body: dict[str, Any]) -> None:
    if "sharing" in body:
        table = Table("order", "pools, bytes", "largest capture", "ratio", title=body["sharing"]["description"])
        for name, row in body["sharing"]["orders"].items():
            sizes = (f"{row[field]:,}" for field in ("pools_nbytes", "largest_capture_nbytes"))
            table.add_row(name, *sizes, str(row.get("ratio", "")))
        console.print(table)
    for name in ("models", "captures", "checks"):
        if name in body:
            table = Table(name, "")
            for key, value in body[name].items():
                if not isinstance(value, dict):
                    table.add_row(key, f"{value:,}" if isinstance(value, int) else str(value))
            console.print(table)
    if "arena" in body:
        table = Table("arena", "peak, bytes", "lower bound", "ratio", "whole capture", "lower bound", "ratio")
        for name, row in body["arena"].items():
            if name == "measured":
                continue
            table.add_row(name, *(f"{value:,}" for value in row.values()))
        console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, separated by commas")
    parser.add_argument("--quick", action="store_true", help="few captures, nothing written")
    parser.add_argument("--update", action="store_true", help="measure part anew, keep the rest of today's file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    body: dict[str, Any] = {}
    for name in options.only.split(","):
        notes.print(f"{name} ...", highlight=False)
        with torch.no_grad():
            body[name] = {"measured": measure.circumstances(options.rounds), **SECTIONS[name](options)}
    show(body)
    if options.quick:
        return
    if options.update:
        body = {k: v for k, v in measure.read_json(RESULTS, "memory").items() if k in SECTIONS} | body
    console.print(str(measure.write_json(RESULTS, "memory", [1], body)))


if __name__ == "__main__":
    main()
