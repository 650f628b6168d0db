"""Measure airgraph's replay against its peers: eager, Inductor, Inductor with cpp_wrapper, AOTInductor.

    replay.py [--threads 1,2] [--rounds 60] [--only a,b] [--smollm2] [--quick] [--update]

Each thread count gets a process of its own (Inductor compiles the number of threads into its kernels); in it, all
contenders of a workload are checked against eager and timed interleaved. Inductor's caches are off and empty.
Prints tables and writes benchmarks/results/replay-YYYY-MM-DD.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import measure
import workloads
from contenders import EAGER, Reference, builds, first_calls, warm_compilers
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
MEMORY_MODES = ("eager", "airgraph")
DECODED_TOKENS = 16
QUIET_LOAD = 0.5
SECTIONS = ("workloads", "measured", "smollm2")
console = Console()
# Wide enough for four workloads where the output is not a terminal.
console.width = max(console.width, 120)
notes = Console(stderr=True)


def measure_workload(name: str, rounds: int, with_first_calls: bool) -> dict[str, Any]:
    """One workload in this process: check every contender against eager, then time them interleaved."""
    import torch

    workload = workloads.make(name)
    reference = Reference.of(workload)
    compile_times = first_calls(workload) if with_first_calls else None
    torch._dynamo.reset()
    with tempfile.TemporaryDirectory(prefix="airgraph-bench-") as folder:
        ready, differences = [], {}
        for build in builds(workload, Path(folder)):
            notes.print(f"workload {name}: {build.contender.name} ...", highlight=False)
            differences[build.contender.name] = reference.check(build)
            ready.append(build.contender)
        timings = measure.interleave(ready, rounds=rounds)
    eager_us = timings[EAGER].median_us
    return {
        "description": workload.description,
        "first_call": compile_times,
        "contenders": {
            contender: {
                **timing.to_dict(),
                "speedup_over_eager": round(eager_us / timing.median_us, 3),
                "max_abs_difference": differences[contender],
            }
            for contender, timing in timings.items()
        },
    }


def measure_decoding(rounds: int) -> dict[str, Any]:
    """SmolLM2's decode step in this process, eager and through airgraph, interleaved."""
    import smollm2
    import torch

    model, prompt = smollm2.load(), smollm2.prompt_ids()
    with torch.inference_mode():
        sequences = {
            EAGER: smollm2.decoder(model, prompt, None),
            "airgraph": smollm2.decoder(model, prompt, "airgraph"),
        }
    ready = [
        measure.Contender(name, sequence.decode, (DECODED_TOKENS,), torch.inference_mode)
        for name, sequence in sequences.items()
    ]
    # One call is a block: it decodes DECODED_TOKENS tokens from the prompt's end.
    timings = measure.interleave(ready, rounds=rounds, warmup_ns=1, target_ns=1)
    tokens = [sequence.tokens for sequence in sequences.values()]
    if tokens[0] != tokens[1]:
        raise SystemExit(f"SmolLM2: airgraph chose other tokens than eager: {tokens[1]}, expected {tokens[0]}")
    eager_us = timings[EAGER].median_us

    def rate(microseconds: float) -> float:
        return round(DECODED_TOKENS / microseconds * 1e6, 3)

    return {
        "description": f"SmolLM2-135M float32 greedy decoding, StaticCache of {smollm2.CACHE_LENGTH}",
        "tokens_equal": True,
        "contenders": {
            name: {
                "median_tokens_per_s": rate(timing.median_us),
                "q1_tokens_per_s": rate(timing.q3_us),
                "q3_tokens_per_s": rate(timing.q1_us),
                "blocks": timing.blocks,
                "tokens_per_block": DECODED_TOKENS,
                "speedup_over_eager": round(eager_us / timing.median_us, 3),
            }
            for name, timing in timings.items()
        },
    }


def measure_memory(threads: int, repeats: int) -> dict[str, Any]:
    """Peak memory of decoding SmolLM2, each time in a new process, eager and airgraph in turn."""
    runs: dict[str, list[dict[str, Any]]] = {mode: [] for mode in MEMORY_MODES}
    for number in range(repeats):
        for mode in MEMORY_MODES:
            notes.print(f"memory of SmolLM2 decoding, {mode}, run {number + 1} ...", highlight=False)
            command = [sys.executable, str(HERE / "decode_memory.py"), mode, "--json"]
            done = subprocess.run(command, env=_environment(threads), check=True, stdout=subprocess.PIPE, text=True)
            runs[mode].append(json.loads(done.stdout.splitlines()[-1]))
    fields = ("peak_nbytes", "decode_nbytes", "loaded_nbytes")
    result: dict[str, Any] = {
        mode: {field: [run[field] for run in runs[mode]] for field in fields} for mode in MEMORY_MODES
    }
    for field in fields[:2]:
        eager, captured = (median(result[mode][field]) for mode in MEMORY_MODES)
        result[f"{field}_airgraph_over_eager"] = round(captured / eager, 4)
    result["tokens_equal"] = runs["eager"][0]["tokens"] == runs["airgraph"][0]["tokens"]
    return result


def _environment(threads: int, cache_folder: str | None = None) -> dict[str, str]:
    added = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    # torch's notices about the caches being off and about its own pytree.
    added["PYTHONWARNINGS"] = "ignore::UserWarning:torch._dynamo.pgo,ignore::FutureWarning:copyreg"
    if cache_folder is not None:
        added |= {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1", "TORCHINDUCTOR_CACHE_DIR": cache_folder}
    return {**os.environ, **added}


def _in_worker(threads: int, arguments: Sequence[str]) -> dict[str, Any]:
    """Run this script again with a fixed number of threads and return what it measured."""
    with tempfile.TemporaryDirectory(prefix="airgraph-bench-") as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, str(HERE / "replay.py"), "--threads", str(threads), *arguments]
        environment = _environment(threads, cache_folder=f"{folder}/inductor")
        done = subprocess.run([*command, "--worker", str(answer)], env=environment, check=False)
        if done.returncode:
            raise SystemExit(f"the benchmark's process with {threads} threads failed; see its message above")
        result: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return result


def work(options: argparse.Namespace) -> dict[str, Any]:
    """The worker's part: everything that is measured with one thread count in one process."""
    import torch

    threads = options.threads[0]
    torch.set_num_threads(threads)
    if options.smollm2:
        return measure_decoding(max(3, options.rounds // 6))
    if not options.quick:
        warm_compilers()
    return {name: measure_workload(name, options.rounds, not options.quick) for name in options.only}


def show_workloads(threads: int, results: Mapping[str, Any]) -> None:
    title = f"µs a call, {threads} thread{'s' if threads > 1 else ''}: median ± half the interquartile range"
    table = Table(title=f"{title}; × against eager", title_justify="left")
    table.add_column("contender", no_wrap=True)
    for name in results:
        table.add_column(name, justify="right", no_wrap=True)
        table.add_column("×", justify="right", no_wrap=True)
    for contender in next(iter(results.values()))["contenders"]:
        row = [contender]
        for result in results.values():
            numbers = result["contenders"][contender]
            digits = 2 if numbers["median_us"] < 100 else 0
            row.append(f"{numbers['median_us']:.{digits}f} ± {numbers['iqr_us'] / 2:.{digits}f}")
            row.append(f"{numbers['speedup_over_eager']:.2f}")
        table.add_row(*row)
    console.print(table)


def show_first_calls(threads: int, results: Mapping[str, Any]) -> None:
    measured = {name: result["first_call"] for name, result in results.items() if result["first_call"]}
    if not measured:
        return
    table = Table(title=f"First call, {threads} thread{'s' if threads > 1 else ''}", title_justify="left")
    for column in ("workload", "Inductor s", "airgraph s", "×", "airgraph's capture ms"):
        table.add_column(column, justify="left" if column == "workload" else "right")
    for name, first in measured.items():
        ratio = first["inductor_s"] / first["airgraph_s"]
        cells = (f"{first['inductor_s']:.2f}", f"{first['airgraph_s']:.3f}", f"{ratio:.1f}")
        table.add_row(name, *cells, f"{first['airgraph_capture_ms']:.1f}")
    console.print(table)


def show_decoding(results: Mapping[str, Any]) -> None:
    table = Table(title="SmolLM2-135M decoding, tokens/s (quartiles)", title_justify="left")
    for column in ("threads", "eager", "airgraph", "×"):
        table.add_column(column, justify="right")
    for threads, result in results["decode"].items():
        eager, captured = (result["contenders"][name] for name in (EAGER, "airgraph"))
        cells = [
            f"{c['median_tokens_per_s']:.1f} ({c['q1_tokens_per_s']:.1f} to {c['q3_tokens_per_s']:.1f})"
            for c in (eager, captured)
        ]
        table.add_row(threads, *cells, f"{captured['speedup_over_eager']:.2f}")
    console.print(table)
    table = Table(title="Peak memory of that process, MiB, median of runs", title_justify="left")
    for column in ("", "eager", "airgraph", "×"):
        table.add_column(column, justify="left" if not column else "right")
    memory = results["memory"]
    for field, label in (("peak_nbytes", "whole process"), ("decode_nbytes", "after loading")):
        cells = [f"{median(memory[mode][field]) / 2**20:.1f}" for mode in MEMORY_MODES]
        table.add_row(label, *cells, f"{memory[f'{field}_airgraph_over_eager']:.3f}")
    console.print(table)


def _names(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in workloads.NAMES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no workload {unknown[0]!r}; there are {', '.join(workloads.NAMES)}")
    return names


def _thread_counts(text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = [0]
    if min(counts) < 1:
        raise argparse.ArgumentTypeError(f"expected thread counts such as 1,2, got {text!r}")
    return counts


def _rounds(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number of rounds from 1, got {text!r}")
    return int(text)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--threads", type=_thread_counts, default=[1, 2], help="thread counts (default: 1,2)")
    parser.add_argument("--rounds", type=_rounds, help="blocks a contender (default: 60; with --quick 10)")
    parser.add_argument("--only", type=_names, default=list(workloads.NAMES), help="workloads (default: all)")
    parser.add_argument("--smollm2", action="store_true", help="also SmolLM2's decoding, speed and memory")
    parser.add_argument("--quick", action="store_true", help="few rounds, no first-call times, no file written")
    parser.add_argument("--update", action="store_true", help="measure part anew, keep the rest of today's file")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.rounds is None:
        options.rounds = 10 if options.quick else 60
    return options


def main() -> None:
    options = parse()
    if importlib.util.find_spec("airgraph") is None:
        raise SystemExit("airgraph is not installed in this Python: run `make bench`, or pip install -e .")
    if options.worker:
        options.worker.write_text(json.dumps(work(options)), encoding="utf-8")
        return
    passed = ["--rounds", str(options.rounds), *(["--quick"] if options.quick else [])]
    load = os.getloadavg()[0]
    if load > QUIET_LOAD:
        notes.print(f"load average {load:.1f}: something else is running, so the numbers will be noisy", style="yellow")
    body: dict[str, Any] = {"workloads": {}, "measured": {}}
    if options.update:
        body |= {key: kept for key, kept in measure.read_json(RESULTS, "replay").items() if key in SECTIONS}
    for threads in options.threads:
        body["measured"][f"workloads, threads={threads}"] = measure.circumstances(options.rounds)
        results = _in_worker(threads, [*passed, "--only", ",".join(options.only)])
        body["workloads"].setdefault(f"{threads}", {}).update(results)
        show_workloads(threads, results)
        show_first_calls(threads, results)
    if options.smollm2:
        body["measured"]["smollm2"] = measure.circumstances(options.rounds)
        decode = {f"{threads}": _in_worker(threads, [*passed, "--smollm2"]) for threads in options.threads}
        memory = measure_memory(max(options.threads), repeats=1 if options.quick else 3)
        body["smollm2"] = {"decode": decode, "memory": memory}
        show_decoding(body["smollm2"])
    if not options.quick:
        path = measure.write_json(RESULTS, "replay", sorted(map(int, body["workloads"])), body)
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
