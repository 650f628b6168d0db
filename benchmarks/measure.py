"""Time several callables side by side in one process, so that the machine's moods hit them all alike.

Method: after a warm-up, every round gives each contender one block of calls. The order rotates from round to
round and is reversed in every second one, so that nobody always runs first or always follows the same neighbour.
A block starts with calls that are not timed (they bring the contender's data back into the caches) and gives one
sample: its mean time a call. Reported are the median of a contender's samples and their interquartile range.
"""

from __future__ import annotations

import datetime as dt
import gc
import json
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import metadata
from itertools import repeat
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter_ns
from typing import Any

WARMUP_NS = 200_000_000
BLOCK_NS = 5_000_000


@dataclass(frozen=True, slots=True)
class Contender:
    """Something to time: `call(*args)`, always inside `context()`, which is entered once a block.

    finish: ends a block within its time, such as a device's synchronize.
    """

    name: str
    call: Callable[..., object]
    args: tuple[Any, ...] = ()
    context: Callable[[], AbstractContextManager[object]] = nullcontext
    finish: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds a call, over the blocks of one contender."""

    median_us: float
    q1_us: float
    q3_us: float
    min_us: float
    blocks: int
    calls_per_block: int

    @property
    def iqr_us(self) -> float:
        return self.q3_us - self.q1_us

    def to_dict(self) -> dict[str, float | int]:
        return {
            "median_us": round(self.median_us, 3),
            "q1_us": round(self.q1_us, 3),
            "q3_us": round(self.q3_us, 3),
            "iqr_us": round(self.iqr_us, 3),
            "min_us": round(self.min_us, 3),
            "blocks": self.blocks,
            "calls_per_block": self.calls_per_block,
        }


@dataclass(frozen=True, slots=True)
class Turns:
    """Of each contender its timing, and the means of its blocks in µs, one a round."""

    timings: dict[str, Timing]
    samples: dict[str, list[float]]

    def difference(self, one: str, other: str) -> Timing:
        """What one takes more than the other, from blocks of the same rounds: the machine's moods are in both."""
        pairs = zip(self.samples[one], self.samples[other], strict=True)
        return summarise([a - b for a, b in pairs], self.timings[one].calls_per_block)


def summarise(samples_us: Sequence[float], calls_per_block: int) -> Timing:
    """Median and quartiles of block means in µs; one sample stands for all three."""
    q1, middle, q3 = quartiles(samples_us)
    return Timing(middle, q1, q3, min(samples_us), len(samples_us), calls_per_block)


def quartiles(samples: Sequence[float]) -> tuple[float, float, float]:
    """The quartiles of samples, the median in the middle; one sample stands for all three."""
    if len(samples) == 1:
        return samples[0], samples[0], samples[0]
    q1, _, q3 = quantiles(samples, n=4, method="inclusive")
    return q1, median(samples), q3


def block_ns(contender: Contender, calls: int) -> int:
    """Nanoseconds that `calls` calls take together, the loop around them included (about 10 ns a call)."""
    call, args = contender.call, contender.args
    with contender.context():
        start = perf_counter_ns()
        for _ in repeat(None, calls):
            call(*args)
        contender.finish()
        return perf_counter_ns() - start


def warm_up(contender: Contender, *, warmup_ns: int = WARMUP_NS, target_ns: int = BLOCK_NS) -> int:
    """Call the contender for `warmup_ns` and return how many calls fill a block of `target_ns`."""
    calls, spent = 1, 0
    while True:
        elapsed = max(block_ns(contender, calls), 1)
        spent += elapsed
        if spent >= warmup_ns:
            return max(1, round(target_ns * calls / elapsed))
        if elapsed < target_ns:
            calls *= 2


def interleave(contenders: Sequence[Contender], *, rounds: int, **how: Any) -> dict[str, Timing]:
    """The timings of `in_turns`."""
    return in_turns(contenders, rounds=rounds, **how).timings


def in_turns(
    contenders: Sequence[Contender],
    *,
    rounds: int,
    warmup_ns: int = WARMUP_NS,
    target_ns: int = BLOCK_NS,
    on_round: Callable[[], object] = lambda: None,
) -> Turns:
    """Time the contenders in turn, `rounds` blocks each. Names must differ; returned in the order given.

    warmup_ns, target_ns: duration of a contender's warm-up and of one block. on_round: called after a round.
    """
    calls = {c.name: warm_up(c, warmup_ns=warmup_ns, target_ns=target_ns) for c in contenders}
    if len(calls) != len(contenders):
        raise ValueError(f"contenders need different names, got {[c.name for c in contenders]}")
    samples: dict[str, list[float]] = {c.name: [] for c in contenders}
    collects = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            # Each second round, since a turn and a reversal undo one another.
            turn = number // 2 % len(contenders)
            order = [*contenders[turn:], *contenders[:turn]]
            for contender in reversed(order) if number % 2 else order:
                count = calls[contender.name]
                block_ns(contender, max(1, count // 10))
                samples[contender.name].append(block_ns(contender, count) / count / 1000)
            on_round()
    finally:
        if collects:
            gc.enable()
    return Turns({name: summarise(values, calls[name]) for name, values in samples.items()}, samples)


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def machine() -> dict[str, Any]:
    """The computer the numbers were measured on."""
    import torch

    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "simd": torch.backends.cpu.get_cpu_capability(),
        "arch": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "load_1min": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str | None]:
    """Versions of what took part; None for what is not installed."""

    def version_of(package: str) -> str | None:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            return None

    packages = ("torch", "torch_npu", "airgraph", "transformers", "numpy", "torchao", "xllamacpp")
    return {"python": platform.python_version(), **{package: version_of(package) for package in packages}}


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def commit() -> dict[str, Any]:
    """The checkout's commit, and whether tracked files differ from it."""
    changes = _git("status", "--porcelain", "--untracked-files=no")
    return {"commit": _git("rev-parse", "HEAD"), "modified": None if changes is None else bool(changes)}


def circumstances(rounds: int) -> dict[str, Any]:
    """When and under which load a section of a result begins."""
    at = dt.datetime.now().astimezone().isoformat(timespec="seconds")
    return {"at": at, "load_1min_before": round(os.getloadavg()[0], 2), "rounds": rounds, **commit()}


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """Today's result of that name; empty if there is none."""
    path = folder / f"{name}-{dt.datetime.now().astimezone().date().isoformat()}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def write_json(folder: Path, name: str, threads: Sequence[int], body: Mapping[str, Any]) -> Path:
    """Write `<folder>/<name>-YYYY-MM-DD.json`, replacing one of the same day, and return its path.

    body: the results, plain data; date, machine, versions, commit and thread counts are put before them.
    """
    now = dt.datetime.now().astimezone()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{now.date().isoformat()}.json"
    record = {
        "date": now.isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "git": commit(),
        "threads": list(threads),
        **body,
    }
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return path
