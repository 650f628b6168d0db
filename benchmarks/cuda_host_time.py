"""Host time of a call on CUDA: PyTorch's CUDA build on a simulated runtime whose kernels are switched off.

Run by `cuda_graphs.py --simulate`. Each contender has a process of its own (see processes.py). With kernels off nothing
is computed, and what remains is the time that Python, PyTorch and the contender take: no device's speed is measured,
and no driver's. Before, every contender's output is compared with eager's in a process with kernels on.

What a backend of torch.compile adds to Dynamo is far less than what Dynamo takes, which differs from process to process
by more. So that is measured within one process: one compiled function, whose guards are the same ones, calls what is
put in the backend's place for a block.

Memory: what the allocator reserves beside weights for a decode step of seven batch sizes, captured in several orders,
against the largest alone.
"""

from __future__ import annotations

import atexit
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import measure
import processes
from rich.console import Console
from rich.table import Table

__all__ = ["simulate", "work"]

RESULTS = Path(__file__).resolve().parent / "results"
EAGER = "eager"
TREES = 'PyTorch, backend="cudagraphs"'
BARE = "bare CUDAGraph.replay()"
AIRGRAPH = "airgraph"
CACHED = "airgraph, cached"
REPLAY = "airgraph, bare replay"
# torch.compile with a backend that does nothing at a call: no graph called through it can be quicker.
DYNAMO = "Dynamo alone"
# The same with PyTorch's own graph for a backend, whose outputs the next call overwrites; and with new ones for each
# call, as nothing is overwritten by airgraph.
REPLAYING = "Dynamo and bare replay"
RENEWING = "Dynamo, bare replay, new outputs"
CONTENDERS = (EAGER, TREES, BARE, AIRGRAPH, CACHED, REPLAY, DYNAMO)
# Called by one compiled function in turns.
ADDED = "added to Dynamo"
BEHIND_DYNAMO = (AIRGRAPH, DYNAMO, REPLAYING, RENEWING)
WORKLOADS = {
    "mlp": "six operators: three Linear 64x64 with relu, batch 1",
    "llama": "4-layer Llama-like decode step",
    "weights": "16-layer Llama-like decode step of 147 weights",
}
# None of them is 1, nor the first of an order a size of the model: those would be taken for one another.
BATCHES = [2, 4, 8, 16, 24, 32, 60]
ORDERS = {
    "largest alone": BATCHES[-1:],
    "ascending": BATCHES,
    "descending": BATCHES[::-1],
    "mixed": [8, 60, 24, 16, 2, 32, 4],
}
HIDDEN = 256
OPERATORS = 600
LIVE = (0, 20_000)


def make_workload(name: str) -> tuple[Any, tuple[Any, ...]]:
    """The model on the device and the arguments of a call."""
    import torch
    import workloads

    if name == "weights":
        torch.manual_seed(workloads.SEED)
        model = workloads.DecodeStep(hidden=64, layers=16, heads=4).eval()
        assert sum(1 for _ in model.parameters()) == 147
        args = (torch.tensor([[7]]), torch.tensor([workloads.POSITION]))
    else:
        workload = workloads.make({"mlp": "c", "llama": "a"}[name])
        model, args = workload.model, workload.args
    return model.cuda(), tuple(arg.cuda() for arg in args)


def make_call(contender: str, model: Any, args: tuple[Any, ...]) -> Callable[..., Any]:
    """A contender's way of calling the model, warmed up."""
    import torch

    call = model
    if contender == TREES:
        call = torch.compile(model, backend="cudagraphs")
    elif contender in (AIRGRAPH, REPLAY):
        call = torch.compile(model, backend="airgraph")
    elif contender == CACHED:
        import airgraph

        # A folder of its own for each process, so that nothing depends on earlier runs.
        folder = tempfile.TemporaryDirectory()
        atexit.register(folder.cleanup)
        call = airgraph.inference.cache_compile(model.forward, cache_dir=folder.name, dynamic=False, strict=True)
    elif contender == DYNAMO:
        made = [model(*args)]
        call = torch.compile(model, backend=lambda gm, inputs: lambda *_: made)
    for _ in range(3):
        call(*args)
    if contender == REPLAY:
        from airgraph.capture.ledger import ledger

        (graph,) = (graph for made in ledger.callables for graph in made.captures)
        return lambda *_: graph.device_graph.replay()
    if contender == BARE:
        return bare(model, args)
    return call


def bare(model: Any, args: tuple[Any, ...]) -> Callable[..., Any]:
    """PyTorch's own graph, replayed on whatever its inputs hold."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model(*args)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = model(*args)

    def replay(*_: Any) -> Any:
        graph.replay()
        return out

    return replay


class Switched:
    """A backend whose compiled graph is whatever stands in its place for the time being.

    `behind`: of each of these names a call of Dynamo's graph with its arguments.
    """

    def __init__(self, model: Any, args: tuple[Any, ...]) -> None:
        import torch

        self.behind: dict[str, Callable[..., Any]] = {}
        self._now: list[Callable[..., Any]] = []
        self._compiled = torch.compile(model, backend=self._compile, fullgraph=True)
        for _ in range(3):
            self._compiled(*args)

    def _compile(self, gm: Any, inputs: Any) -> Callable[..., Any]:
        from airgraph.backend import airgraph

        own = airgraph(gm, inputs)

        def first(*args: Any) -> Any:
            made, replay = gm(*args), bare(gm, args)
            self.behind = {
                AIRGRAPH: own,
                DYNAMO: lambda *_: made,
                REPLAYING: replay,
                RENEWING: lambda *_: [out.clone() for out in replay()],
            }
            now[0] = own
            return own(*args)

        self._now = now = [first]
        return lambda *args: now[0](*args)

    @contextmanager
    def _standing(self, name: str) -> Iterator[None]:
        self._now[0] = self.behind[name]
        yield

    def contenders(self, args: tuple[Any, ...]) -> list[measure.Contender]:
        import torch

        return [
            measure.Contender(name, self._compiled, args, partial(self._standing, name), torch.cuda.synchronize)
            for name in self.behind
        ]


def added_us(workload: str, rounds: int) -> dict[str, Any]:
    """What each adds to Dynamo, from blocks that follow one another in one process."""
    model, args = make_workload(workload)
    turns = measure.in_turns(Switched(model, args).contenders(args), rounds=rounds)
    return {name: turns.difference(name, DYNAMO).to_dict() for name in BEHIND_DYNAMO if name != DYNAMO}


def work(contender: str, workload: str, *, check: bool, rounds: int) -> None:
    """In a process of its own: compare with eager, be timed, or say what is reserved."""
    import torch

    torch.set_num_threads(1)
    with torch.no_grad():
        if workload == "capture":
            processes.answer(first_call_ms(int(contender)))
            return
        if contender == ADDED:
            processes.answer(added_us(workload, rounds))
            return
        if workload == "memory":
            processes.answer(reserved_nbytes(ORDERS[contender]))
            return
        model, args = make_workload(workload)
        expected = model(*args).cpu()
        call = make_call(contender, model, args)
        if check:
            out = call(*args)
            if contender != REPLAY:
                torch.testing.assert_close(out.cpu(), expected)
            processes.answer("checked")
            return
        processes.serve(measure.Contender(contender, call, args), torch.cuda.synchronize)


def reserved_nbytes(batches: list[int]) -> int:
    """What the allocator holds for a decode step of these batch sizes, captured in this order, beside its weights and
    caches."""
    import gc

    import torch
    import workloads
    from torch.nn.functional import scaled_dot_product_attention, silu

    torch.manual_seed(workloads.SEED)
    model = workloads.DecodeStep(HIDDEN, 4, 4).cuda().eval()
    heads, size = 4, HIDDEN // 4
    # More rows than any batch, or the two sizes would be taken for one.
    shape = (BATCHES[-1] + 1, workloads.CACHE_LENGTH, heads, size)
    caches = [(torch.randn(shape, device="cuda"), torch.randn(shape, device="cuda")) for _ in model.layers]

    def step(token: Any, row: Any, position: Any) -> Any:
        """A token of each of these rows of the caches, each at a position of its own."""
        batch = token.shape[0]
        x = model.embedding(token)
        cos, sin = (each.index_select(0, position)[:, None] for each in (model.cos, model.sin))
        for layer, (keys, values) in zip(model.layers, caches, strict=True):
            attention, normed = layer.attention, layer.attention_norm(x)
            query, key, value = (
                each(normed).view(batch, heads, size) for each in (attention.query, attention.key, attention.value)
            )
            keys[row, position] = workloads.rotate(key, cos, sin)
            values[row, position] = value
            query = workloads.rotate(query, cos, sin)[:, :, None]
            mixed = scaled_dot_product_attention(query, keys[row].transpose(1, 2), values[row].transpose(1, 2))
            x = x + attention.output(mixed.reshape(batch, HIDDEN))
            y = layer.mlp_norm(x)
            x = x + layer.down(silu(layer.gate(y)) * layer.up(y))
        return model.head(model.norm(x))

    compiled = torch.compile(step, backend="airgraph", dynamic=True, fullgraph=True)
    arguments = [
        (
            torch.full((batch,), 7, device="cuda"),
            torch.arange(batch, device="cuda"),
            torch.arange(batch, device="cuda") + workloads.POSITION - BATCHES[-1],
        )
        for batch in batches
    ]
    # Eager's own libraries and workspaces are there from the beginning.
    expected = [step(*args).clone() for args in arguments]
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    for _ in range(2):
        for args, right in zip(arguments, expected, strict=True):
            torch.testing.assert_close(compiled(*args), right)
    gc.collect()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved() - before


def first_call_ms(live: int) -> dict[str, float]:
    """Of a graph of 600 operators beside so many live tensors: eager's time, and that of a first call, which is a run
    and a capture."""
    import time

    import torch

    def program(x: Any) -> Any:
        for _ in range(OPERATORS // 2):
            x = torch.sin(x) + 1
        return x

    def ms(call: Callable[[], object]) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e3

    held = [torch.empty(8, device="cuda") for _ in range(live)]
    # The first two compile: one shape, then any.
    inputs = [torch.ones(4, 8 + number, device="cuda") for number in range(10)]
    compiled = torch.compile(program, backend="airgraph", dynamic=True)
    for x in inputs[:2]:
        program(x), compiled(x)
    eager = [ms(lambda x=x: program(x)) for x in inputs[2:]]
    first = [ms(lambda x=x: compiled(x)) for x in inputs[2:]]
    del held
    return {"eager_ms": round(median(eager), 3), "first_call_ms": round(median(first), 3)}


def command(contender: str, workload: str, *mode: str) -> list[str]:
    """What starts a contender's process. mode: further arguments; kernels are on for "--check"."""
    null = [] if "--check" in mode or workload == "memory" else ["--null"]
    script = str(Path(__file__).with_name("cuda_graphs.py"))
    return [
        *(sys.executable, "-m", "simcuda", *null, script),
        *("--worker", contender, "--workload", workload, *mode),
    ]


def run(workload: str, rounds: int) -> dict[str, Any]:
    for contender in CONTENDERS:
        print(f"{workload}: {contender} against eager ...", file=sys.stderr)
        checking = processes.Worker(command(contender, workload, "--check"), is_quiet=False)
        assert checking.answer() == "checked"
        checking.close()
    turns = processes.time_in_turns({each: command(each, workload) for each in CONTENDERS}, rounds)
    took = {name: timing.median_us for name, timing in turns.timings.items()}
    print(f"{workload}: {ADDED} ...", file=sys.stderr)
    adding = processes.Worker(command(ADDED, workload, "--rounds", str(rounds)))
    added = adding.answer()
    adding.close()
    own = {
        "over Dynamo alone": added[AIRGRAPH],
        "a bare replay over Dynamo alone": added[REPLAYING],
        "a bare replay and new outputs over Dynamo alone": added[RENEWING],
        "cached, over bare replay": turns.difference(CACHED, BARE).to_dict(),
    }
    return {
        "description": WORKLOADS[workload],
        "contenders": {name: timing.to_dict() for name, timing in turns.timings.items()},
        "own_us": own,
        "trees_over": {name: round(took[TREES] / took[name], 3) for name in (AIRGRAPH, CACHED, DYNAMO)},
    }


def run_memory() -> dict[str, Any]:
    reserved = {}
    for order in ORDERS:
        print(f"memory: {order} ...", file=sys.stderr)
        worker = processes.Worker(command(order, "memory"), is_quiet=False)
        reserved[order] = worker.answer()
        worker.close()
    largest = reserved["largest alone"]
    return {
        "description": f"4-layer decode step (hidden {HIDDEN}, batches {BATCHES})",
        "reserved_nbytes": reserved,
        "over_largest_alone": {order: round(nbytes / largest, 3) for order, nbytes in reserved.items()},
    }


def run_captures() -> dict[str, Any]:
    found = {}
    for live in LIVE:
        print(f"capture beside {live} live tensors ...", file=sys.stderr)
        worker = processes.Worker(command(str(live), "capture"))
        found[str(live)] = worker.answer()
        worker.close()
    return {"description": f"{OPERATORS} operators, by how many other tensors live", "beside": found}


def show(results: dict[str, Any], memory: dict[str, Any], captures: dict[str, Any]) -> None:
    table = Table(title="host µs a call, kernels off: median ± half the interquartile range", title_justify="left")
    table.add_column("contender")
    for name in results:
        table.add_column(name, justify="right")
    for contender in CONTENDERS:
        rows = [result["contenders"][contender] for result in results.values()]
        table.add_row(contender, *(f"{row['median_us']:.2f} ± {row['iqr_us'] / 2:.2f}" for row in rows))
    for figure in next(iter(results.values()))["own_us"]:
        table.add_row(f"µs {figure}", *(f"{result['own_us'][figure]['median_us']:.2f}" for result in results.values()))
    Console().print(table)
    for live, row in captures["beside"].items():
        print(
            f"first call of {OPERATORS} operators beside {live} tensors: {row['first_call_ms']} ms, "
            f"eager {row['eager_ms']}"
        )
    for order, nbytes in memory["reserved_nbytes"].items():
        print(f"reserved, {order}: {nbytes} bytes, {memory['over_largest_alone'][order]:.2f} of the largest alone")


def simulate(rounds: int, *, is_kept: bool) -> None:
    """Measure all of it and print; is_kept: and write results/simulated-cuda-YYYY-MM-DD.json."""
    import simcuda

    # For this process, which only asks torch for its version: without it torch cannot be imported here.
    simcuda.enable()
    circumstances = measure.circumstances(rounds)
    results = {name: run(name, rounds) for name in WORKLOADS}
    memory, captures = run_memory(), run_captures()
    show(results, memory, captures)
    if is_kept:
        body = {
            "simulated": "simcuda, kernels off: host time only",
            **circumstances,
            "workloads": results,
            "memory": memory,
            "captures": captures,
        }
        print(f"wrote {measure.write_json(RESULTS, 'simulated-cuda', [1], body)}")
