"""Host time of a call on Ascend: the real torch_npu on a simulated runtime whose kernels are switched off.

    make bench-npu        or        .venv-npu/bin/python benchmarks/npu_overhead.py [--rounds 40] [--quick]

Each contender has a process of its own (two graph compilers in one process disturb each other); all are alive at once
and take turns block by block, so that the machine's moods hit them all alike. With kernels off nothing is computed and
what remains is the time that Python, PyTorch, torch_npu and the contender take: no device's speed is measured. All call
torch.compile with nothing but a backend; `dynamic=` and `fullgraph=` add some microseconds a call to each of them.
Before, every contender's output is compared with eager's in a process with kernels on. Prints a table and writes
benchmarks/results/npu-overhead-YYYY-MM-DD.json.
"""

from __future__ import annotations

import argparse
import atexit
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import measure
import processes
from rich.console import Console
from rich.table import Table

import simcann

RESULTS = Path(__file__).resolve().parent / "results"
EAGER = "eager"
TORCHAIR = "TorchAir reduce-overhead"
NPUGRAPH_EX = "npugraph_ex"
NPUGRAPHS = "npugraphs"
BARE = "bare NPUGraph.replay()"
AIRGRAPH = "airgraph"
CACHED = "airgraph, cached"
REPLAY = "airgraph, bare replay"
# torch.compile with a backend that does nothing at a call: no graph called through it can be quicker.
DYNAMO = "Dynamo alone"
# The same with inputs copied through PyTorch's dispatcher and torch_npu's queue, from which another thread takes.
QUEUED = "airgraph, copies by torch_npu"
CACHED_QUEUED = "airgraph, cached, copies by torch_npu"
CONTENDERS = (EAGER, TORCHAIR, NPUGRAPH_EX, NPUGRAPHS, BARE, AIRGRAPH, CACHED, REPLAY, DYNAMO)
WORKLOADS = {
    "mlp": "six operators: three Linear 64x64 with relu, batch 1",
    "llama": "4-layer Llama-like decode step",
    "copies": "the six operators again, and how inputs are copied",
    "loaded": "the same while two other processes keep both cores busy",
    "streams": "two stacks of three Linear 64x64 with relu on two streams, forked and joined by events, batch 1",
}
# The others have no streams within a graph.
OF_COPIES = (BARE, AIRGRAPH, QUEUED, CACHED, CACHED_QUEUED)
ON_STREAMS = (EAGER, TORCHAIR, AIRGRAPH, CACHED, REPLAY, DYNAMO)


def contenders_of(workload: str) -> tuple[str, ...]:
    return {"streams": ON_STREAMS, "copies": OF_COPIES, "loaded": OF_COPIES}.get(workload, CONTENDERS)


def make_workload(name: str, contender: str) -> tuple[Any, tuple[Any, ...]]:
    """The model on the device and the arguments of a call. contender: in whose words streams are said."""
    import torch

    if name == "streams":
        import npu_streams

        torch.manual_seed(0)
        words = {EAGER: "", TORCHAIR: "torchair", DYNAMO: ""}.get(contender, "airgraph")
        return npu_streams.make(words).npu(), (torch.randn(1, 64).npu(),)
    import workloads

    workload = workloads.make("a" if name == "llama" else "c")
    return workload.model.npu(), tuple(arg.npu() for arg in workload.args)


def make_call(contender: str, model: Any, args: tuple[Any, ...]) -> Callable[..., Any]:
    """A contender's way of calling the model, warmed up."""
    import torch

    call = model
    if contender in (QUEUED, CACHED_QUEUED):
        from airgraph.runtime.engine.loading import engine

        engine().allow_plain_copies(False)
    if contender == TORCHAIR:
        import torchair

        config = torchair.CompilerConfig()
        config.mode = "reduce-overhead"
        backend = torchair.get_npu_backend(compiler_config=config)
        call = torch.compile(model, backend=backend)
    elif contender in (NPUGRAPH_EX, NPUGRAPHS):
        call = torch.compile(model, backend=contender)
    elif contender in (AIRGRAPH, QUEUED, REPLAY):
        call = torch.compile(model, backend="airgraph")
    elif contender in (CACHED, CACHED_QUEUED):
        import airgraph

        # A folder of its own for each process, so that nothing depends on earlier runs.
        folder = tempfile.TemporaryDirectory()
        atexit.register(folder.cleanup)
        call = airgraph.inference.cache_compile(model.forward, cache_dir=folder.name, dynamic=False, strict=True)
    elif contender == DYNAMO:
        made = [model(*args)]
        call = torch.compile(model, backend=lambda gm, inputs: lambda *_: made)
    for _ in range(3):
        out = call(*args)
    if contender == REPLAY:
        from airgraph.capture.ledger import ledger

        (graph,) = (graph for made in ledger.callables for graph in made.captures)
        return lambda *_: graph.device_graph.replay()
    if contender == BARE:
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            out = model(*args)

        def replay(*_: Any) -> Any:
            graph.replay()
            return out

        return replay
    return call


def work(contender: str, workload: str, check: bool) -> None:
    """In a process of its own: compare with eager, or be timed."""
    import torch

    torch.set_num_threads(1)
    with torch.no_grad():
        model, args = make_workload(workload, contender)
        expected = make_workload(workload, EAGER)[0](*args)
        call = make_call(contender, model, args)
        if check:
            out = call(*args)
            if contender != REPLAY:
                torch.testing.assert_close(out.cpu(), expected.cpu())
            processes.answer("checked")
            return
        processes.serve(measure.Contender(contender, call, args), torch.npu.synchronize)


def command(contender: str, workload: str, *mode: str) -> list[str]:
    """What starts a contender's process. mode: "--check" or nothing; then kernels are off."""
    null = [] if mode else ["--null"]
    return [
        *(sys.executable, "-m", "simcann", *null, __file__),
        *("--worker", contender, "--workload", workload, *mode),
    ]


def run(workload: str, rounds: int) -> dict[str, Any]:
    contenders = contenders_of(workload)
    for contender in contenders:
        print(f"{workload}: {contender} against eager ...", file=sys.stderr)
        checking = processes.Worker(command(contender, workload, "--check"), is_quiet=False)
        assert checking.answer() == "checked"
        checking.close()
    with ExitStack() as stack:
        for _ in range(2 if workload == "loaded" else 0):
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(busy.kill)
        timings = processes.time_in_turns({each: command(each, workload) for each in contenders}, rounds).timings
    return {
        "description": WORKLOADS[workload],
        "contenders": {
            name: {
                **timing.to_dict(),
                "airgraph_speedup": round(timing.median_us / timings[AIRGRAPH].median_us, 3),
            }
            for name, timing in timings.items()
        },
    }


def show(results: dict[str, Any]) -> None:
    table = Table(title="host µs a call, kernels off: median ± half the interquartile range", title_justify="left")
    table.add_column("contender")
    for name in results:
        table.add_column(name, justify="right")
        table.add_column("airgraph is", justify="right")
    for contender in (*CONTENDERS, QUEUED, CACHED_QUEUED):
        cells = []
        for result in results.values():
            row = result["contenders"].get(contender)
            if row is None:
                cells += ["", ""]
                continue
            cells += [f"{row['median_us']:.2f} ± {row['iqr_us'] / 2:.2f}", f"{row['airgraph_speedup']:.2f}x"]
        table.add_row(contender, *cells)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="blocks a contender (default: 40)")
    parser.add_argument("--quick", action="store_true", help="few rounds, no file written")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--workload", help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.workload, options.check)
        return
    # For this process, which only asks torch for its version: without it torch cannot be imported here.
    simcann.enable()
    rounds = 6 if options.quick else options.rounds
    circumstances = measure.circumstances(rounds)
    results = {name: run(name, rounds) for name in WORKLOADS}
    show(results)
    if not options.quick:
        body = {"simulated": "simcann, kernels off: host time only", **circumstances, "workloads": results}
        print(f"wrote {measure.write_json(RESULTS, 'npu-overhead', [1], body)}")


if __name__ == "__main__":
    main()
