"""Measure SmolLM2's decoding, a token at a time, against llama.cpp on the same weights, eager and Inductor.

    llm.py [--threads 1,2] [--rounds 12] [--only bf16,int8] [--contenders eager,inductor,...] [--no-loaded]

Each contender has a process of its own; all of one type of weights are alive at once and take turns, a block of tokens
each. airgraph is called through the cached door, with kernels of its own and with eager's. int8 is torchao's
Int8WeightOnlyConfig on a bfloat16 model beside llama.cpp's Q8_0. On loaded cores, airgraph with two threads is compared
with airgraph with one while other processes keep every core busy. Prints tables and writes
benchmarks/results/llm-YYYY-MM-DD.json.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import llama_cpp
import measure
import smollm2
from processes import Worker, answer
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).resolve().parent / "results"
TOKENS = 16
WEIGHTS = {"fp32": "F32", "bf16": "BF16", "int8": "Q8_0"}
CONTENDERS = ("eager", "inductor", "airgraph exact", "airgraph", "llama.cpp")
console = Console()


def model_of(weights: str) -> Any:
    import torch

    model = smollm2.load()
    if weights == "fp32":
        return model
    model = model.to(torch.bfloat16)
    if weights == "int8":
        from torchao.quantization import Int8WeightOnlyConfig, quantize_

        quantize_(model, Int8WeightOnlyConfig())
    return model


def step_of(model: Any, contender: str, folder: str) -> Callable[..., Any]:
    import torch

    if contender == "eager":
        return model  # type: ignore[no-any-return]
    if contender == "inductor":
        import torch._inductor.config as inductor

        inductor.freezing = True
        return torch.compile(model, mode="max-autotune", dynamic=False)  # type: ignore[no-any-return]
    import airgraph

    options = {"kernels": "exact" if contender == "airgraph exact" else "fast"}
    return airgraph.inference.cache_compile(model.forward, cache_dir=folder, options=options)


def serve(weights: str, contender: str, threads: int) -> None:
    """A worker: decode as many tokens as each line says."""
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    model, prompt = model_of(weights), smollm2.prompt_ids()
    with tempfile.TemporaryDirectory(prefix="airgraph-bench-") as folder:
        decoder = smollm2.Decoder(model, step_of(model, contender, folder), prompt)
        decoder.prefill()
        decoder.decode(TOKENS)
        answer(decoder.tokens)
        for line in sys.stdin:
            start = perf_counter_ns()
            decoder.decode(int(line))
            answer(perf_counter_ns() - start)


def serve_llama(model: str, threads: int) -> None:
    llama_cpp.serve(Path(model), smollm2.prompt_ids()[0].tolist(), threads, smollm2.CACHE_LENGTH)


def measured(weights: str, threads: int, rounds: int, contenders: list[str], folder: Path) -> dict[str, Any]:
    """Tokens a second of each contender."""
    me = [sys.executable, __file__, "--threads", str(threads)]
    workers: dict[str, Worker] = {}
    tokens: dict[str, list[int]] = {}
    for name in contenders:
        if name == "llama.cpp":
            file = folder / f"{WEIGHTS[weights]}.gguf"
            if not file.exists():
                llama_cpp.write_as(smollm2.weights_folder() / smollm2.WEIGHTS, file, WEIGHTS[weights])
            workers[name] = Worker([*me, "--serve-llama", str(file)])
            workers[name].answer()
        else:
            workers[name] = Worker([*me, "--serve", weights, name], is_quiet=False)
            tokens[name] = workers[name].answer()
    found = in_turns(workers, rounds)
    for name, each in tokens.items():
        found[name]["tokens"] = each
    return found


def in_turns(workers: dict[str, Worker], rounds: int) -> dict[str, Any]:
    samples: dict[str, list[float]] = {name: [] for name in workers}
    order = list(workers)
    for turn in range(rounds):
        for name in order[:: 1 if turn % 2 else -1]:
            samples[name].append(workers[name].ask(TOKENS) / TOKENS / 1e3)
        order = order[1:] + order[:1]
    for worker in workers.values():
        worker.close()
    timings = {name: measure.summarise(each, TOKENS) for name, each in samples.items()}
    return {
        name: {**timing.to_dict(), "tokens_per_s": round(1e6 / timing.median_us, 2)} for name, timing in timings.items()
    }


def on_loaded_cores(weights: str, rounds: int) -> dict[str, Any]:
    """airgraph and eager by one thread and by two, while each core has another process to run."""
    workers = {}
    for contender in ("airgraph", "eager"):
        for threads in (1, 2):
            command = [sys.executable, __file__, "--threads", str(threads), "--serve", weights, contender]
            worker = workers[f"{contender}, {threads} thread{'s' if threads > 1 else ''}"] = Worker(command)
            worker.answer()
    with ExitStack() as stack:
        for _ in os.sched_getaffinity(0):
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(busy.kill)
        return in_turns(workers, rounds)


def shown(results: dict[str, Any]) -> None:
    for threads, by_weights in results.items():
        table = Table(title=f"SmolLM2-135M, tokens/s, {threads} thread(s)")
        for column in ("weights", *CONTENDERS, "over llama.cpp"):
            table.add_column(column, justify="left" if column == "weights" else "right")
        for weights, row in by_weights.items():
            rate = {name: each["tokens_per_s"] for name, each in row.items()}
            ratio = f"{rate['airgraph'] / rate['llama.cpp']:.2f}" if {"airgraph", "llama.cpp"} <= rate.keys() else "-"
            table.add_row(weights, *(f"{rate[name]:.1f}" if name in rate else "-" for name in CONTENDERS), ratio)
        console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", default=",".join(WEIGHTS))
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--loaded", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--serve", nargs=2, metavar=("WEIGHTS", "CONTENDER"), help=argparse.SUPPRESS)
    parser.add_argument("--serve-llama", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(*options.serve, int(options.threads))
    if options.serve_llama:
        return serve_llama(options.serve_llama, int(options.threads))
    begun = measure.circumstances(options.rounds)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="airgraph-bench-") as folder:
        for threads in map(int, options.threads.split(",")):
            for weights in options.only.split(","):
                row = measured(weights, threads, options.rounds, options.contenders.split(","), Path(folder))
                results.setdefault(str(threads), {})[weights] = row
                shown({str(threads): {weights: row}})
    body: dict[str, Any] = {**begun, "decoding": results}
    if options.loaded:
        body["loaded"] = on_loaded_cores("bf16", options.rounds)
        for name, row in body["loaded"].items():
            console.print(f"loaded cores: {name}: {row['tokens_per_s']} tokens/s")
    console.print(f"written to {measure.write_json(RESULTS, 'llm', sorted(map(int, results)), body)}")


if __name__ == "__main__":
    main()
