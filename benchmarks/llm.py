"""Measure SmolLM2's decoding, a token at a time, against llama.cpp on the same weights, eager and Inductor.

    llm.py [--threads 1,2] [--rounds 12] [--only bf16,int8] [--contenders eager,inductor,...] [--no-others]
           [--tuned-threads 1]

Each contender has a process of its own; all of one type of weights are alive at once and take turns, a block of tokens
each. They start together, but for Inductor, which measures kernels when it starts, and takes minutes for that:
--tuned-threads says for which numbers of threads it takes part. airgraph is called through the cached door, with
kernels of its own, the same with its weights in huge pages, and with eager's kernels. int8 is torchao's
Int8WeightOnlyConfig on a bfloat16 model beside llama.cpp's Q8_0.

Others: a prefill of 128 tokens; a model of the sizes of Qwen3-0.6B with random weights; and on loaded cores, airgraph
with two threads against airgraph with one while other processes keep every core busy. Prints tables and writes
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
CONTENDERS = ("eager", "inductor", "airgraph exact", "airgraph", "airgraph placed", "llama.cpp")
# Of what has no peer in llama.cpp here.
OF_TORCH = tuple(name for name in CONTENDERS if name != "llama.cpp")
PREFILL_TOKENS = 128
console = Console()


def model_of(weights: str) -> Any:
    import torch

    if weights == "qwen3":
        return of_qwen3s_sizes().to(torch.bfloat16)
    model = smollm2.load()
    if weights == "fp32":
        return model
    model = model.to(torch.bfloat16)
    if weights == "int8":
        from torchao.quantization import Int8WeightOnlyConfig, quantize_

        quantize_(model, Int8WeightOnlyConfig())
    return model


def of_qwen3s_sizes() -> Any:
    """Qwen3-0.6B as its configuration has it, with random weights."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=151_936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=True,
        max_position_embeddings=40_960,
    )
    return Qwen3ForCausalLM(config).eval()


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
    if contender == "airgraph placed":
        airgraph.cpu.place_weights(model)
    return airgraph.inference.cache_compile(model.forward, cache_dir=folder, dynamic=False, options=options)


def serve(weights: str, contender: str, threads: int, folder: str) -> None:
    """A worker: decode as many tokens as each line says. folder: of the compile cache."""
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    model, prompt = model_of(weights), smollm2.prompt_ids()
    decoder = smollm2.Decoder(model, step_of(smollm2.Greedy(model), contender, folder), prompt)
    decoder.prefill()
    decoder.decode(TOKENS)
    answer(decoder.tokens)
    for line in sys.stdin:
        start = perf_counter_ns()
        decoder.decode(int(line))
        answer(perf_counter_ns() - start)


def serve_prefill(weights: str, contender: str, threads: int, folder: str) -> None:
    """A worker: read as many prompts as each line says."""
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    model = model_of(weights)
    prompt = torch.arange(PREFILL_TOKENS).view(1, -1) + 1000
    step = step_of(model, contender, folder)

    def read(count: int) -> None:
        for _ in range(count):
            step(prompt, use_cache=False, logits_to_keep=1)

    read(3)
    answer(True)
    for line in sys.stdin:
        start = perf_counter_ns()
        read(int(line))
        answer(perf_counter_ns() - start)


def serve_llama(model: str, threads: int) -> None:
    llama_cpp.serve(Path(model), smollm2.prompt_ids()[0].tolist(), threads, smollm2.CACHE_LENGTH)


def started(
    what: str, weights: str, threads: int, contenders: list[str], folder: Path
) -> tuple[dict[str, Worker], Any]:
    """A worker for each contender, in their order, and what each answered when it was ready."""
    me = [sys.executable, __file__, "--threads", str(threads), "--cache", str(folder / "cache")]
    workers: dict[str, Worker] = {}
    answers: dict[str, Any] = {}
    # What measures while it starts has the machine to itself.
    alone = [name for name in contenders if name == "inductor"]
    for names in ([name for name in contenders if name not in alone], *([name] for name in alone)):
        for name in names:
            if name == "llama.cpp":
                file = folder / f"{WEIGHTS[weights]}.gguf"
                if not file.exists():
                    llama_cpp.write_as(smollm2.weights_folder() / smollm2.WEIGHTS, file, WEIGHTS[weights])
                workers[name] = Worker([*me, "--serve-llama", str(file)])
            else:
                workers[name] = Worker([*me, what, weights, name], is_quiet=False)
        answers |= {name: workers[name].answer() for name in names}
    return {name: workers[name] for name in contenders}, answers


def measured(weights: str, threads: int, rounds: int, contenders: list[str], folder: Path) -> dict[str, Any]:
    """Tokens a second of each contender."""
    workers, answers = started("--serve", weights, threads, contenders, folder)
    found = in_turns(workers, rounds)
    for name, tokens in answers.items():
        if name != "llama.cpp":
            found[name]["tokens"] = tokens
    return found


def prefill(weights: str, threads: int, rounds: int, contenders: list[str], folder: Path) -> dict[str, Any]:
    """Prompts a second of each contender."""
    names = [name for name in contenders if name != "airgraph placed"]
    workers, _ = started("--serve-prefill", weights, threads, names, folder)
    return in_turns(workers, rounds, calls=1, what="prompts_per_s")


def in_turns(
    workers: dict[str, Worker], rounds: int, *, calls: int = TOKENS, what: str = "tokens_per_s"
) -> dict[str, Any]:
    samples: dict[str, list[float]] = {name: [] for name in workers}
    order = list(workers)
    for turn in range(rounds):
        for name in order[:: 1 if turn % 2 else -1]:
            samples[name].append(workers[name].ask(calls) / calls / 1e3)
        order = order[1:] + order[:1]
    for worker in workers.values():
        worker.close()
    timings = {name: measure.summarise(each, calls) for name, each in samples.items()}
    return {name: {**timing.to_dict(), what: round(1e6 / timing.median_us, 2)} for name, timing in timings.items()}


def on_loaded_cores(weights: str, rounds: int, folder: Path) -> dict[str, Any]:
    """airgraph and eager by one thread and by two, while each core has another process to run."""
    workers = {}
    for threads in (1, 2):
        made, _ = started("--serve", weights, threads, ["airgraph", "eager"], folder)
        workers |= {f"{name}, {threads} thread{'s' if threads > 1 else ''}": each for name, each in made.items()}
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
            ours = max(rate.get("airgraph", 0), rate.get("airgraph placed", 0))
            ratio = f"{ours / rate['llama.cpp']:.2f}" if ours and "llama.cpp" in rate else "-"
            table.add_row(weights, *(f"{rate[name]:.1f}" if name in rate else "-" for name in CONTENDERS), ratio)
        console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", default=",".join(WEIGHTS))
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--others", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--tuned-threads", default="1,2", help="where Inductor takes part (default: 1,2)")
    parser.add_argument("--cache", help=argparse.SUPPRESS)
    parser.add_argument("--serve", nargs=2, metavar=("WEIGHTS", "CONTENDER"), help=argparse.SUPPRESS)
    parser.add_argument("--serve-prefill", nargs=2, metavar=("WEIGHTS", "CONTENDER"), help=argparse.SUPPRESS)
    parser.add_argument("--serve-llama", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(*options.serve, int(options.threads), options.cache)
    if options.serve_prefill:
        return serve_prefill(*options.serve_prefill, int(options.threads), options.cache)
    if options.serve_llama:
        return serve_llama(options.serve_llama, int(options.threads))
    begun = measure.circumstances(options.rounds)
    threads, contenders = [int(each) for each in options.threads.split(",")], options.contenders.split(",")
    tuned = [int(each) for each in options.tuned_threads.split(",")]
    decoding: dict[str, Any] = {}
    body: dict[str, Any] = {**begun, "decoding": decoding}
    with tempfile.TemporaryDirectory(prefix="airgraph-bench-") as folder:
        for count in threads:
            for weights in options.only.split(","):
                taking_part = [name for name in contenders if name != "inductor" or count in tuned]
                row = measured(weights, count, options.rounds, taking_part, Path(folder))
                decoding.setdefault(str(count), {})[weights] = row
                shown({str(count): {weights: row}})
        if options.others:
            # Not Inductor, whose tuning takes minutes for each.
            torch_only = [name for name in contenders if name in OF_TORCH and name != "inductor"]
            body["qwen3"] = {
                str(count): measured("qwen3", count, options.rounds, torch_only, Path(folder)) for count in threads
            }
            body["prefill"] = {
                str(count): prefill("bf16", count, options.rounds, torch_only, Path(folder)) for count in threads
            }
            body["loaded"] = on_loaded_cores("bf16", options.rounds, Path(folder))
            for name in ("qwen3", "prefill", "loaded"):
                console.print(name, body[name])
    console.print(f"written to {measure.write_json(RESULTS, 'llm', threads, body)}")


if __name__ == "__main__":
    main()
