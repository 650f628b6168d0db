"""Measure what the compile cache saves: from a model that is loaded to its first result, in processes of their own.

    cache.py [--starts 7] [--only a,b] [--smollm2]

Ways to start: torch.compile with Inductor, its caches filled by an earlier start; torch.compile with airgraph;
airgraph's compile cache, empty and filled. Imports of torch, transformers and the package, and making or loading the
model, are not counted. The ways take turns, `starts` processes each. Prints a table and writes
benchmarks/results/cache-YYYY-MM-DD.json. What a call costs afterwards is in replay.py, row "airgraph, cached".
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import measure
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).resolve().parent / "results"
INDUCTOR, COMPILE, EMPTY, FILLED = (
    "Inductor, caches filled",
    "airgraph",
    "airgraph, cache empty",
    "airgraph, cache filled",
)
WAYS = (INDUCTOR, COMPILE, EMPTY, FILLED)
SMOLLM2 = "smollm2"
NAMES = ("a", "b", "c", "d")
console = Console()


def make(name: str) -> tuple[Callable[..., Any], tuple[Any, ...], str]:
    """A function, the arguments of a call, and what it is."""
    if name != SMOLLM2:
        import workloads

        workload = workloads.make(name)
        return workload.model.forward, workload.args, workload.description
    import smollm2
    import torch

    sequence = smollm2.decoder(smollm2.load(), smollm2.prompt_ids(), None)
    token = torch.tensor([[42]])

    def step(ids: Any, cache: Any) -> Any:
        return sequence.model(ids, past_key_values=cache, use_cache=True).logits

    return step, (token, sequence._cache), "SmolLM2-135M, a decode step"


def work(name: str, way: str, folder: str) -> None:
    """In a process of its own: print seconds to the first result."""
    import torch

    import airgraph

    torch.set_num_threads(1)
    # Imported here, so that nobody is charged for it.
    import torch._dynamo

    with torch.inference_mode() if name != SMOLLM2 else torch.no_grad():
        function, args, _ = make(name)
        start = perf_counter()
        if way == INDUCTOR:
            call = torch.compile(function)
        elif way == COMPILE:
            call = torch.compile(function, backend="airgraph")
        else:
            call = airgraph.inference.cache_compile(function, cache_dir=folder, dynamic=False, strict=True)
        call(*args)
        elapsed = perf_counter() - start
    print(f"ANSWER {elapsed}", flush=True)


def started(name: str, way: str, folder: str) -> float:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
    command = [sys.executable, __file__, "--worker", name, way, f"{folder}/airgraph"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith("ANSWER "):
            return float(line.removeprefix("ANSWER "))
    raise SystemExit(f"{name}, {way}: no answer: {done.stderr[-2000:]}")


def measured(name: str, starts: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="airgraph-bench-") as kept:
        for way in (INDUCTOR, FILLED):
            started(name, way, kept)
        samples: dict[str, list[float]] = {way: [] for way in WAYS}
        for number in range(starts):
            for way in WAYS[number % len(WAYS) :] + WAYS[: number % len(WAYS)]:
                with tempfile.TemporaryDirectory(prefix="airgraph-bench-") as fresh:
                    samples[way].append(started(name, way, fresh if way == EMPTY else kept))
                console.print(f"{name}, {way}: {samples[way][-1]:.3f} s", highlight=False)
        (file,) = Path(kept).rglob("*.airgraph")
        nbytes = file.stat().st_size
    return {"file_nbytes": nbytes, "starts": {way: summary(values) for way, values in samples.items()}}


def summary(seconds: Sequence[float]) -> dict[str, Any]:
    q1, _, q3 = quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else seconds * 3
    return {"median_s": round(median(seconds), 4), "q1_s": round(q1, 4), "q3_s": round(q3, 4), "starts": len(seconds)}


def show(results: dict[str, Any]) -> None:
    table = Table(title="seconds to the first result: median (quartiles)", title_justify="left")
    table.add_column("way")
    for name in results:
        table.add_column(name, justify="right")
    for way in WAYS:
        rows = [result["starts"][way] for result in results.values()]
        table.add_row(way, *(f"{row['median_s']:.3f} ({row['q1_s']:.3f} to {row['q3_s']:.3f})" for row in rows))
    console.print(table)


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        work(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=7, help="processes a way (default: 7)")
    parser.add_argument("--only", default=",".join(NAMES), help="workloads, separated by commas")
    parser.add_argument("--smollm2", action="store_true", help="also SmolLM2's decode step")
    options = parser.parse_args()
    names = [*options.only.split(","), *([SMOLLM2] if options.smollm2 else [])]
    circumstances = measure.circumstances(options.starts)
    results = {name: {"description": make(name)[2], **measured(name, options.starts)} for name in names}
    show(results)
    body = {"measured": circumstances, "workloads": results}
    console.print(f"wrote {measure.write_json(RESULTS, 'cache', [1], body)}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
