"""Streams that run beside one another on CPU, against the same graphs on one stream, in one process.

    streams.py [--rounds 40]

Two independent stacks of four Linear layers (width 64, 256, 512; batch 1, 64) and a layer of a mixture of experts with
its shared expert on a side stream: replays on two streams, on one with one thread, on one with two intra-op threads.
Then what a fork and a join cost: hot, beside some microseconds of work, after idling, and while other processes keep
all cores busy; before and after that what two cores need to tell each other one thing and be answered (hand_off.cpp,
which needs a compiler). Prints tables and writes benchmarks/results/streams-YYYY-MM-DD.json.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import measure
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import airgraph
from airgraph import scope

RESULTS = Path(__file__).resolve().parent / "results"
WIDTHS, BATCHES = (64, 256, 512), (1, 64)


def _stack(width: int) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(4)))


class TwoStacks(nn.Module):
    """Two stacks of Linear layers, the second on a stream of its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.main, self.side = _stack(width), _stack(width)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        with scope.stream("side"):
            beside = self.side(y)
        return self.main(x), beside


class Experts(nn.Module):
    """Two of eight experts a token, their weights gathered, and one that all tokens share on a stream of its own."""

    def __init__(self, width: int = 256, inner: int = 512, shared: int = 1024, experts: int = 8) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, inner) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, inner, width) * inner**-0.5)
        self.shared = nn.Sequential(nn.Linear(width, shared), nn.SiLU(), nn.Linear(shared, width))
        self.done = airgraph.Event("shared expert")

    def forward(self, x: Tensor) -> Tensor:
        with scope.stream("shared expert"):
            shared = self.shared(x)
            self.done.record()
        weights, chosen = self.router(x).softmax(-1).topk(2)
        tokens = x.repeat_interleave(2, 0).unsqueeze(1)
        hidden = nn.functional.silu(torch.bmm(tokens, self.up[chosen.flatten()]))
        routed = torch.bmm(hidden, self.down[chosen.flatten()]).view(x.shape[0], 2, -1)
        mixed = (routed * weights.unsqueeze(-1)).sum(1)
        self.done.wait()
        return mixed + shared


@contextmanager
def _intra_op(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    # OpenMP's threads spin for some milliseconds after their last work, and here they would do so on another's time.
    time.sleep(0.02)
    # A core that has slept is slow at first.
    end = time.perf_counter() + 0.05
    while time.perf_counter() < end:
        pass
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _graph(model: nn.Module, arguments: tuple[Tensor, ...], streams: int) -> tuple[Callable[[], None], int]:
    """A captured graph's replay on so many streams, and the threads that run it."""
    torch._dynamo.reset()
    airgraph.reset()
    torch.compile(model, backend="airgraph", fullgraph=True, options={"max_streams": streams - 1})(*arguments)
    from airgraph.capture.ledger import ledger

    (record,) = (record for record in ledger.records if record.state == "captured")
    device_graph = record.device_graph() if record.device_graph is not None else None
    assert device_graph is not None
    _KEPT.append((device_graph, model))
    return device_graph.replay, record.threads


_KEPT: list[Any] = []


def compare(model: nn.Module, arguments: tuple[Tensor, ...], rounds: int) -> dict[str, Any]:
    """Replays on two streams against those on one, with one and with two intra-op threads."""
    contenders, threads = [], {}
    for name, streams, intra_op in (("two streams", 2, 2), ("one stream", 1, 1), ("one stream, 2 threads", 1, 2)):
        replay, threads[name] = _graph(model, arguments, streams)
        contenders.append(measure.Contender(name, replay, context=lambda intra_op=intra_op: _intra_op(intra_op)))
    timings = measure.interleave(contenders, rounds=rounds, target_ns=20_000_000)
    return {
        "threads": threads["two streams"],
        "rows": {name: timing.to_dict() for name, timing in timings.items()},
        "to_one_stream": round(timings["one stream"].median_us / timings["two streams"].median_us, 3),
        "to_two_threads": round(timings["one stream, 2 threads"].median_us / timings["two streams"].median_us, 3),
    }


class ForkAndJoin(nn.Module):
    """An addition on each of two streams, forked by one event and joined by another; or on one only."""

    def __init__(self, beside: bool) -> None:
        super().__init__()
        self.beside = beside
        self.forked, self.joined = airgraph.Event("forked"), airgraph.Event("joined")

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        first = x + 1
        self.forked.record()
        if not self.beside:
            return (first + 2 + 3,)
        with scope.stream("side"):
            self.forked.wait()
            side = first + 1
            self.joined.record()
        main = first + 2
        self.joined.wait()
        return main + 3, side


def hand_offs(folder: Path) -> list[float] | None:
    """There and back between two cores, ns: quartiles. None without a compiler."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        return None
    program = folder / "hand_off"
    source = Path(__file__).with_name("hand_off.cpp")
    subprocess.run([compiler, "-O2", "-pthread", str(source), "-o", str(program)], check=True)
    said = subprocess.run([program], capture_output=True, text=True, check=True)
    return [float(each) for each in said.stdout.split()]


def fork_and_join(rounds: int) -> dict[str, Any]:
    """What two streams cost more than the longer of them alone, µs."""
    from airgraph.runtime.cpu import beside

    kept, beside._LEAST_GAIN_NS = beside._LEAST_GAIN_NS, float("-inf")
    try:
        x = torch.randn(8)
        (both, threads), (alone, _) = (_graph(ForkAndJoin(each), (x,), 2) for each in (True, False))
    finally:
        beside._LEAST_GAIN_NS = kept
    contenders = [measure.Contender("both", both), measure.Contender("alone", alone)]
    hot = measure.interleave(contenders, rounds=rounds)
    found = {
        "threads": threads,
        "hot_us": round(hot["both"].median_us - hot["alone"].median_us, 3),
        "both": hot["both"].to_dict(),
        "alone": hot["alone"].to_dict(),
        "after_idling_us": _single_calls(both, alone, pause=0.01),
    }
    with _all_cores_busy():
        found["on_busy_cores_us"] = _single_calls(both, alone, pause=0.0)
    return found


class OneStack(nn.Module):
    """The half of TwoStacks, on one stream."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.main = _stack(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.main(x)


def beside_work(rounds: int, width: int = 64) -> dict[str, Any]:
    """What two stacks on two streams cost more than one of them, µs: fork and join, with something to do beside."""
    x = torch.randn(1, width)
    both, _ = _graph(TwoStacks(width).eval(), (x, x), 2)
    one, _ = _graph(OneStack(width).eval(), (x,), 2)
    contenders = [
        measure.Contender(name, call, context=lambda: _intra_op(1)) for name, call in (("both", both), ("one", one))
    ]
    timings = measure.interleave(contenders, rounds=rounds, target_ns=20_000_000)
    return {
        "both": timings["both"].to_dict(),
        "one": timings["one"].to_dict(),
        "more_us": round(timings["both"].median_us - timings["one"].median_us, 3),
    }


def _single_calls(
    both: Callable[[], None], alone: Callable[[], None], pause: float, calls: int = 300
) -> dict[str, float]:
    """The difference of single calls, each after a pause: quartiles, and the most."""
    samples: dict[str, list[float]] = {"both": [], "alone": []}
    for _ in range(calls):
        for name, call in (("both", both), ("alone", alone)):
            time.sleep(pause)
            start = time.perf_counter_ns()
            call()
            samples[name].append((time.perf_counter_ns() - start) / 1000)
    q1, middle, q3 = measure.quartiles(samples["both"])
    return {
        "median": round(middle - measure.quartiles(samples["alone"])[1], 2),
        "q1": round(q1, 2),
        "q3": round(q3, 2),
        "most": round(max(samples["both"]), 1),
        "alone_most": round(max(samples["alone"]), 1),
    }


@contextmanager
def _all_cores_busy() -> Iterator[None]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
    try:
        time.sleep(0.5)
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    torch.manual_seed(0)
    body: dict[str, Any] = {"circumstances": measure.circumstances(rounds), "stacks": {}}
    table = Table("case", "two streams, µs", "one stream", "one stream, 2 threads", "ratio", "ratio to 2 threads")
    with torch.no_grad():
        cases: list[tuple[str, nn.Module, tuple[Tensor, ...]]] = [
            (f"width {width}, batch {batch}", TwoStacks(width), tuple(torch.randn(batch, width) for _ in range(2)))
            for width in WIDTHS
            for batch in BATCHES
        ]
        cases += [(f"mixture of experts, {rows} rows", Experts(), (torch.randn(rows, 256),)) for rows in (1, 8)]
        for name, model, arguments in cases:
            found = body["stacks"][name] = compare(model.eval(), arguments, rounds)
            medians = [f"{row['median_us']:.2f}" for row in found["rows"].values()]
            table.add_row(name, *medians, f"{found['to_one_stream']:.2f}", f"{found['to_two_threads']:.2f}")
        with tempfile.TemporaryDirectory() as folder:
            before = hand_offs(Path(folder))
            found = fork_and_join(rounds)
            after = hand_offs(Path(folder))
        body["fork_and_join"] = {**found, "hand_off_ns": [before, after], "beside_work": beside_work(rounds)}
    console = Console()
    console.print(table)
    console.print(body["fork_and_join"])
    console.print(f"written to {measure.write_json(RESULTS, 'streams', [1, 2], body)}")


if __name__ == "__main__":
    main()
