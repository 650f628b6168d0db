"""Compare a call's time with that of another checkout: a process for each, blocks of calls by turns, in one run.

    commits.py BASELINE [--rounds 60] [--workloads a,b,c,d]

BASELINE is a checkout of another commit, its engine built (`python setup.py build_ext --inplace` there). Measured is
the whole call on one thread, through `torch.compile` and through `cache_compile`, and a first call that captures what
is compiled already. Prints a table and writes
benchmarks/results/commits-BASELINE-YYYY-MM-DD.json.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import measure
import torch
import workloads
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
DOORS = ("compiled", "cached")
CAPTURE = "capture"
BLOCK_NS = 100_000_000


class Worker:
    """A process that imports airgraph from one checkout and times blocks of calls when asked."""

    def __init__(self, checkout: Path, names: Sequence[str]) -> None:
        environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", ",".join(names)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        found = Path(self._answer()["package"])
        if found.parent.parent != checkout / "src":
            raise RuntimeError(f"airgraph was to come from {checkout}, and comes from {found}")

    def block(self, workload: str, door: str) -> float:
        """Microseconds a call, the mean of one block."""
        assert self._process.stdin is not None
        print(workload, door, file=self._process.stdin, flush=True)
        return float(self._answer()["us"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process ended with exit code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def serve(names: Sequence[str]) -> None:
    import airgraph

    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        blocks: dict[tuple[str, str], tuple[measure.Contender, int]] = {}
        captures: dict[str, Callable[[], Any]] = {}
        for name in names:
            workload = workloads.make(name)
            calls: dict[str, Callable[..., Any]] = {
                "compiled": torch.compile(workload.model, backend="airgraph"),
                "cached": airgraph.inference.cache_compile(workload.model.forward, cache_dir=folder, dynamic=False),
            }
            for door in DOORS:
                contender = measure.Contender(door, calls[door], workload.args)
                # Compiling is not to be taken for a slow call.
                contender.call(*contender.args)
                blocks[name, door] = (contender, measure.warm_up(contender, target_ns=BLOCK_NS))
            captures[name] = functools.partial(calls["compiled"], *workload.args)
        print(json.dumps({"package": airgraph.__file__}), file=answers, flush=True)
        for line in sys.stdin:
            name, door = line.split()
            if door == CAPTURE:
                airgraph.reset()
                start = time.perf_counter_ns()
                captures[name]()
                print(json.dumps({"us": (time.perf_counter_ns() - start) / 1000}), file=answers, flush=True)
                continue
            contender, count = blocks[name, door]
            # A process that waited has lost its caches, and on some machines its memory too.
            measure.block_ns(contender, max(1, count // 2))
            print(json.dumps({"us": measure.block_ns(contender, count) / count / 1000}), file=answers, flush=True)


def compare(baseline: Path, names: Sequence[str], rounds: int) -> dict[str, Any]:
    here = Worker(HERE.parent, names)
    before = Worker(baseline, names)
    rows: dict[str, Any] = {}
    try:
        for name in names:
            for door in (*DOORS, CAPTURE):
                samples: dict[str, list[float]] = {"before": [], "now": []}
                for number in range(rounds):
                    order = [("before", before), ("now", here)]
                    for which, worker in reversed(order) if number % 2 else order:
                        samples[which].append(worker.block(name, door))
                ratios = [now / then for now, then in zip(samples["now"], samples["before"], strict=True)]
                low, middle, high = measure.quartiles(ratios)
                rows[f"{name}, {door}"] = {
                    **{which: measure.summarise(times, 0).to_dict() for which, times in samples.items()},
                    "ratio": round(median(samples["now"]) / median(samples["before"]), 4),
                    "ratio_of_neighbours": {"median": round(middle, 4), "q1": round(low, 4), "q3": round(high, 4)},
                }
    finally:
        here.close()
        before.close()
    return rows


def commit_of(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("baseline", nargs="?", type=Path, help="a checkout of another commit, its engine built")
    parser.add_argument("--rounds", type=int, default=60, help="blocks of each")
    parser.add_argument("--workloads", default="a,b,c,d")
    parser.add_argument("--serve", metavar="WORKLOADS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve.split(","))
        return
    if options.baseline is None:
        parser.error("name a checkout of another commit to compare with")
    baseline = options.baseline.resolve()
    at = measure.circumstances(options.rounds)
    rows = compare(baseline, options.workloads.split(","), options.rounds)
    table = Table(title="time a call, against another commit")
    for column in ("workload, door", "before, µs", "now, µs", "ratio", "of neighbouring blocks"):
        table.add_column(column)
    for name, row in rows.items():
        near = row["ratio_of_neighbours"]
        shown = (f"{row['before']['median_us']:.2f}", f"{row['now']['median_us']:.2f}", f"{row['ratio']:.3f}")
        table.add_row(name, *shown, f"{near['median']:.3f} ({near['q1']:.3f} to {near['q3']:.3f})")
    before = commit_of(baseline)
    body = {"commits": {"before": before, "circumstances": at, "rows": rows}}
    Console().print(table)
    Console().print(str(measure.write_json(RESULTS, f"commits-{before[:7]}", [1], body)))


if __name__ == "__main__":
    main()
