"""Measure airgraph on a CUDA device against its peers: eager, Inductor, Inductor's CUDA graphs, a bare CUDAGraph.

    python benchmarks/cuda_graphs.py [--rounds 40] [--only a,1b] [--quick]
    .venv-cuda/bin/python benchmarks/cuda_graphs.py --simulate [--rounds 40] [--quick]

All contenders of a workload run in one process and are timed interleaved; a block of calls ends with a synchronize, so
a number is the longer of host and device time a call. Each is checked against eager first. Prints a table and writes
benchmarks/results/cuda-YYYY-MM-DD.json. Without a CUDA device it says so and ends; `--simulate` needs none and measures
the host's time and the memory that is reserved (see cuda_host_time.py).

Not named cuda.py: torch imports a package of that name, and would find this file beside any other benchmark.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cuda_host_time

if "--simulate" in sys.argv or "--worker" in sys.argv:
    # Before torch, which has to be imported on the simulated runtime.
    import simcuda

    simcuda.enable()

import measure
import torch
import workloads
from contenders import with_own_code
from llama_decode import LlamaDecode
from rich.console import Console
from rich.table import Table
from torch import nn

RESULTS = Path(__file__).resolve().parent / "results"
EAGER = "eager"
AIRGRAPH = "airgraph"
LLAMA_1B = "1b"
LLAMA_CACHE = 1024
LLAMA_POSITION = 1000
DESCRIPTIONS = {LLAMA_1B: "decode step of a Llama shaped as one of 1.2 billion parameters, random weights, bfloat16"}

Call = Callable[..., Any]


def make(name: str, device: str) -> tuple[str, nn.Module, tuple[torch.Tensor, ...]]:
    """Description, model and arguments, on the device."""
    if name == LLAMA_1B:
        args = (torch.tensor([[7]], device=device), torch.tensor([LLAMA_POSITION], device=device))
        return DESCRIPTIONS[name], LlamaDecode(device, cache_length=LLAMA_CACHE), args
    workload = workloads.make(name)
    return workload.description, workload.model.to(device), tuple(arg.to(device) for arg in workload.args)


def contenders(model: nn.Module, args: tuple[torch.Tensor, ...]) -> Iterator[tuple[str, Call]]:
    """Each warmed up, in the order of the table."""
    yield EAGER, model
    for name, options in (
        ("Inductor", {"backend": "inductor"}),
        ("Inductor, reduce-overhead", {"backend": "inductor", "mode": "reduce-overhead"}),
        (AIRGRAPH, {"backend": "airgraph"}),
    ):
        yield name, torch.compile(with_own_code(model, name), fullgraph=True, dynamic=False, **options)
        if name == AIRGRAPH:
            from airgraph.capture.ledger import ledger

            (graph,) = (graph for made in ledger.callables for graph in made.captures)
            yield "airgraph, bare replay", _ignoring_arguments(graph.device_graph.replay)
    yield cuda_host_time.BARE, cuda_host_time.bare(model, args)


def _ignoring_arguments(call: Call) -> Call:
    return lambda *_: call()


def run(name: str, device: str, rounds: int) -> dict[str, Any]:
    import airgraph

    description, model, args = make(name, device)
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if name == LLAMA_1B else {"rtol": 1e-3, "atol": 1e-3}
    timed = []
    # Under no_grad everywhere: Inductor's CUDA graphs and eager alike accept it.
    with torch.no_grad():
        expected = model(*args).clone()
        for contender, call in contenders(model, args):
            print(f"workload {name}: {contender} ...", file=sys.stderr)
            for _ in range(3):
                out = call(*args)
            if isinstance(out, torch.Tensor):
                torch.testing.assert_close(out, expected, **tolerance)
            timed.append(measure.Contender(contender, call, args, torch.no_grad, torch.cuda.synchronize))
        timings = measure.interleave(timed, rounds=rounds)
    report = airgraph.explain().to_dict()
    torch._dynamo.reset()
    airgraph.reset()
    return {
        "description": description,
        "captures": report["counters"]["captures"],
        "contenders": {
            contender: {**timing.to_dict(), "speedup_over_eager": round(timings[EAGER].median_us / timing.median_us, 3)}
            for contender, timing in timings.items()
        },
    }


def show(results: dict[str, Any]) -> None:
    table = Table(title="µs a call: median ± half the interquartile range; × against eager", title_justify="left")
    table.add_column("contender")
    for name in results:
        table.add_column(name, justify="right")
        table.add_column("×", justify="right")
    for contender in next(iter(results.values()))["contenders"]:
        cells = []
        for result in results.values():
            row = result["contenders"][contender]
            cells += [f"{row['median_us']:.1f} ± {row['iqr_us'] / 2:.1f}", f"{row['speedup_over_eager']:.2f}"]
        table.add_row(contender, *cells)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="blocks a contender (default: 40)")
    parser.add_argument("--only", default=f"a,b,c,d,{LLAMA_1B}", help="workloads (default: all)")
    parser.add_argument("--quick", action="store_true", help="few rounds, no file written")
    parser.add_argument("--simulate", action="store_true", help="the host's time on a simulated runtime")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--workload", help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        cuda_host_time.work(options.worker, options.workload, check=options.check, rounds=options.rounds)
        return
    if options.simulate:
        cuda_host_time.simulate(6 if options.quick else options.rounds, is_kept=not options.quick)
        return
    if not torch.cuda.is_available():
        sys.exit("benchmarks/cuda_graphs.py: torch finds no CUDA device here.")
    rounds = 6 if options.quick else options.rounds
    circumstances = measure.circumstances(rounds)
    results = {name: run(name, "cuda", rounds) for name in options.only.split(",")}
    show(results)
    if not options.quick:
        device = {"name": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
        body = {"device": device, **circumstances, "workloads": results}
        print(f"wrote {measure.write_json(RESULTS, 'cuda', [torch.get_num_threads()], body)}")


if __name__ == "__main__":
    main()
