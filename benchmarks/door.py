"""What a call through the compile cache costs beside its replay, by the number of guards that it checks.

    door.py [--starts 5]

The cost is taken within each call: its time less that of the replay within it. So the caches are as replays leave
them, and no two medians of milliseconds are subtracted. Beside it the same call of a function whose graph answers at
once, with all that it reads in the caches. Also what a first call costs that finds its file among those of other
configurations of its class, and what SmolLM2's first call and its capture take in `starts` processes of their own.
Prints tables and writes benchmarks/results/door-YYYY-MM-DD.json.
"""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import measure
import smollm2
import torch
import workloads
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import airgraph
from airgraph.capture.captures import Captures

RESULTS = Path(__file__).resolve().parent / "results"
CONDITIONS = (10, 100, 1000)
CONFIGURATIONS = (1, 40)
ROUNDS = 40
CALLS = 200


class Chain(nn.Module):
    """Modules that only add a number, each of which tracing takes some things for granted about."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Add(number) for number in range(length))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Add(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.on = True

    def forward(self, x: Tensor) -> Tensor:
        # What is computed stays small, whatever their number.
        return x + 1 if self.on and self.number == 0 else x


def llama() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A decode step of an 8-layer Llama of transformers; its cache is an argument."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=4,
    )
    return decode_step(LlamaForCausalLM(config).eval(), 128)


def decode_step(model: Any, cache_length: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The step of a model of transformers and its arguments, for any number of calls."""
    from transformers import StaticCache

    cache = StaticCache(config=model.config, max_cache_len=cache_length)
    with torch.no_grad():
        model(torch.tensor([[1, 2, 3]]), past_key_values=cache, use_cache=True)

    def step(ids: Tensor, past: Any) -> Tensor:
        # As long as there is room in the cache, whatever the number of calls.
        for layer in past.layers:
            layer.cumulative_length.fill_(3)
        return model(ids, past_key_values=past, use_cache=True).logits

    return step, (torch.tensor([[42]]), cache)


def passed_on(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Decorated(nn.Module):
    """A step as a method behind a decorator of *args, as the forwards of transformers are."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    @passed_on
    def forward(self, ids: Tensor, past: Any) -> Tensor:
        for layer in past.layers:
            layer.cumulative_length.fill_(3)
        return self.model(ids, past_key_values=past, use_cache=True).logits  # type: ignore[no-any-return]


def cost(name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Any]:
    """Of one function: the guards of its graph, and microseconds a call."""
    with tempfile.TemporaryDirectory(prefix="airgraph-bench-") as folder, torch.no_grad():
        call = airgraph.inference.cache_compile(function, cache_dir=folder, dynamic=False, strict=True)
        call(*args)
        (entry,) = call._entries
        read = list(entry._binding.read(call._form.values(args, {})))
        replay = entry._graphed
        count = len(entry.manifest.inputs)
        given = read[:count]
        door = airgraph.inference.cache_compile(function, cache_dir=folder, dynamic=False, strict=True)
        door(*args)
        (stubbed,) = door._entries
        outputs = replay.call(*given)
        stubbed._graphed = lambda arguments: outputs
        timed = measure.interleave(
            [
                measure.Contender("call", call, args),
                measure.Contender("replay", replay.call, tuple(given)),
                measure.Contender("door", door, args),
            ],
            rounds=ROUNDS,
        )
        stubbed._graphed = replay
        around = beside_replay(door, args, stubbed)
    whole, alone = timed["call"], timed["replay"]
    return {
        "description": name,
        "conditions": len(entry.manifest.guards),
        "inputs": count,
        "call": whole.to_dict(),
        "replay": alone.to_dict(),
        "door": around,
        "door_alone": timed["door"].to_dict(),
    }


def beside_replay(call: Callable[..., Any], args: tuple[Any, ...], entry: Any) -> dict[str, Any]:
    """Microseconds of calls, each less that of the replay within it."""
    replay, inside = entry._graphed, 0.0

    def timed(arguments: Any) -> Any:
        nonlocal inside
        begin = perf_counter()
        outputs = replay(arguments)
        inside = perf_counter() - begin
        return outputs

    entry._graphed = timed
    found = []
    for _ in range(CALLS):
        begin = perf_counter()
        call(*args)
        found.append((perf_counter() - begin - inside) * 1e6)
    entry._graphed = replay
    q1, middle, q3 = measure.quartiles(found)
    return {"median_us": round(middle, 3), "quartiles_us": [round(q1, 3), round(q3, 3)]}


def measured() -> dict[str, Any]:
    """A row for each number of guards, for workload c, and for a Llama of transformers."""
    torch.set_num_threads(1)
    rows = {}
    for wanted in CONDITIONS:
        model = Chain(max(1, round(wanted / per_layer())))
        rows[str(wanted)] = cost(f"a chain of {len(model.layers)} modules", model.forward, (torch.ones(4),))
    workload = workloads.make("c")
    rows["c"] = cost(workload.description, workload.model.forward, workload.args)
    function, args = llama()
    rows["llama"] = cost("Llama of transformers, 8 layers, hidden 64, StaticCache: a decode step", function, args)
    model = smollm2.load()
    function, args = decode_step(model, smollm2.CACHE_LENGTH)
    rows["smollm2"] = cost("SmolLM2-135M, StaticCache: a decode step", function, args)
    rows["smollm2 decorated"] = cost("the same, a method behind a decorator", Decorated(model).forward, args)
    return rows


def start(folder: str) -> None:
    """In a process of its own: print milliseconds of a first call, of its capture, and of the processor in that."""
    torch.set_num_threads(1)
    function, args = decode_step(smollm2.load(), smollm2.CACHE_LENGTH)
    capture, busy_ms = Captures.capture, []

    def timed(*given: Any, **named: Any) -> Any:
        begin = process_time()
        made = capture(*given, **named)
        busy_ms.append((process_time() - begin) * 1e3)
        return made

    Captures.capture = timed  # type: ignore[method-assign]
    with torch.no_grad():
        first_ms = first_call(function, *args, folder=folder)
    (graph,) = airgraph.explain().to_dict()["graphs"]
    print(f"ANSWER {first_ms} {graph['capture_ms']} {busy_ms[0]}", flush=True)


def starts(count: int) -> dict[str, Any]:
    """Milliseconds of SmolLM2's first calls that read their file, and of the captures within."""
    found: list[tuple[float, ...]] = []
    with tempfile.TemporaryDirectory(prefix="airgraph-bench-") as folder:
        # The first one traces.
        for _ in range(count + 1):
            command = [sys.executable, __file__, "--start", folder]
            done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=False)
            answers = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
            if not answers:
                raise SystemExit(f"a start gave no answer: {done.stderr[-2000:]}")
            found.append(tuple(map(float, answers[0])))
    names = ("first_call", "capture", "capture_processor")
    return {"starts": count, **dict(zip(names, map(milliseconds, zip(*found[1:], strict=True)), strict=True))}


def milliseconds(found: Sequence[float]) -> dict[str, Any]:
    q1, middle, q3 = measure.quartiles(found)
    return {"median_ms": round(middle, 3), "quartiles_ms": [round(q1, 3), round(q3, 3)]}


class Offset(nn.Module):
    """Configurations of one shape, told apart by a number of its own."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.number = number

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.number


class Scaler:
    """The same without a module, the number in another object."""

    def __init__(self, number: int) -> None:
        self.inner = Settings(number)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.inner.number


@dataclass
class Settings:
    number: int


def of_width(width: int) -> tuple[Callable[..., Any], Tensor]:
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
    return model.forward, torch.ones(2, width)


# What the configurations of a class differ by, and how one is made.
DIFFERENCES: dict[str, Callable[[int], tuple[Callable[..., Any], Tensor]]] = {
    "widths": of_width,
    "a number of a module": lambda number: (Offset(number).forward, torch.ones(2, 8)),
    "a number in an object": lambda number: (Scaler(number).forward, torch.ones(2, 8)),
}


def readings() -> list[dict[str, Any]]:
    """Milliseconds of a first call that reads its file, by how many configurations of its class have one."""
    rows = []
    with torch.no_grad(), tempfile.TemporaryDirectory(prefix="airgraph-bench-") as base:
        for place, (difference, make) in enumerate(DIFFERENCES.items()):
            folders = {count: str(Path(base, str(place), str(count))) for count in CONFIGURATIONS}
            for count, folder in folders.items():
                for number in range(1, count + 1):
                    first_call(*make(number), folder=folder)
            samples: dict[int, list[float]] = {count: [] for count in CONFIGURATIONS}
            for _ in range(ROUNDS):
                for count, folder in folders.items():
                    # The one that was written last, and so comes after all others.
                    samples[count].append(first_call(*make(count), folder=folder))
            for count, found in samples.items():
                rows.append({"difference": difference, "configurations": count, **milliseconds(found)})
    return rows


def first_call(function: Callable[..., Any], *args: Any, folder: str) -> float:
    """Milliseconds of the first call of a function that is new to the process."""
    call = airgraph.inference.cache_compile(function, cache_dir=folder, dynamic=False, strict=True)
    begin = perf_counter()
    call(*args)
    return (perf_counter() - begin) * 1e3


def per_layer() -> float:
    """Conditions for each module of a chain."""
    with tempfile.TemporaryDirectory(prefix="airgraph-bench-") as folder, torch.no_grad():
        model = Chain(40)
        call = airgraph.inference.cache_compile(model.forward, cache_dir=folder, dynamic=False, strict=True)
        call(torch.ones(4))
        return len(call._entries[0].manifest.guards) / 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=5, help="processes that SmolLM2 starts in (default: 5)")
    parser.add_argument("--start", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.start is not None:
        start(options.start)
        return
    circumstances = measure.circumstances(ROUNDS)
    begun = starts(options.starts)
    rows = measured()
    table = Table(title="a call through the compile cache, µs", title_justify="left")
    for column in ("what", "conditions", "inputs", "call", "replay", "door", "door, nothing else"):
        table.add_column(column)
    for row in rows.values():
        times = (row[what]["median_us"] for what in ("call", "replay", "door", "door_alone"))
        counts = (row["conditions"], row["inputs"])
        table.add_row(row["description"], *map(str, counts), *(f"{time:.1f}" for time in times))
    Console().print(table)
    read = readings()
    table = Table(title="a first call that reads its file, ms", title_justify="left")
    for column in ("configurations of its class", "that differ by", "median"):
        table.add_column(column)
    for row in read:
        table.add_row(str(row["configurations"]), row["difference"], f"{row['median_ms']:.1f}")
    Console().print(table)
    for what in ("first_call", "capture", "capture_processor"):
        Console().print(f"SmolLM2, {what} of a start from files: {begun[what]['median_ms']:.1f} ms", highlight=False)
    body = {"measured": circumstances, "door": rows, "readings": read, "smollm2_starts": begun}
    path = measure.write_json(RESULTS, "door", [1], body)
    Console().print(f"wrote {path}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
