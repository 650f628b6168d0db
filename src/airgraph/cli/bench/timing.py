"""Times several ways side by side in one process, so that the machine's moods meet all of them.

Method: after a warm-up every round gives each way one block of calls, in an order that is reversed in every second
round and rotates after it. A block begins with calls that are not timed, and gives one sample: its mean time a call.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from statistics import median, quantiles
from time import perf_counter_ns
from typing import Any

import torch

__all__ = ["Timed", "Timing", "interleave"]

WARMUP_NS = 200_000_000
BLOCK_NS = 5_000_000
# Of a run by --calls, and of one by --seconds at least.
ROUNDS = 20
ROUNDS_AT_LEAST = 5


@dataclass(frozen=True, slots=True)
class Timed:
    """call(*args, **kwargs). before: done before each block. finish: what a block's time ends with."""

    name: str
    call: Callable[..., object]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    before: Callable[[], None]
    finish: Callable[[], None]
    calls_at_most: int | None = None

    def block_ns(self, calls: int) -> int:
        """Nanoseconds that so many calls take, the loop around them included."""
        call, args, kwargs = self.call, self.args, self.kwargs
        start = perf_counter_ns()
        for _ in repeat(None, calls):
            call(*args, **kwargs)
        self.finish()
        return perf_counter_ns() - start


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds a call, over the blocks of one way."""

    median_us: float
    p10_us: float
    p90_us: float
    q1_us: float
    q3_us: float
    min_us: float
    blocks: int
    calls: int

    @classmethod
    def of(cls, samples_us: Sequence[float], calls: int) -> Timing:
        """One sample stands for all."""
        if len(samples_us) == 1:
            samples_us = [*samples_us] * 2
            blocks = 1
        else:
            blocks = len(samples_us)
        tenths = quantiles(samples_us, n=10, method="inclusive")
        quarters = quantiles(samples_us, n=4, method="inclusive")
        return cls(
            median_us=median(samples_us),
            p10_us=tenths[0],
            p90_us=tenths[-1],
            q1_us=quarters[0],
            q3_us=quarters[-1],
            min_us=min(samples_us),
            blocks=blocks,
            calls=calls,
        )

    def to_dict(self) -> dict[str, float | int]:
        return {
            "median_us": round(self.median_us, 3),
            "p10_us": round(self.p10_us, 3),
            "p90_us": round(self.p90_us, 3),
            "q1_us": round(self.q1_us, 3),
            "q3_us": round(self.q3_us, 3),
            "iqr_us": round(self.q3_us - self.q1_us, 3),
            "min_us": round(self.min_us, 3),
            "blocks": self.blocks,
            "calls": self.calls,
        }


def interleave(ways: Sequence[Timed], *, calls: int | None, seconds: float) -> dict[str, Timing]:
    """Time all ways, each in as many blocks.

    calls: timed calls of each way; where it is None, each is timed for about `seconds`, and for five blocks at least.
    """
    blocks = _by_calls(ways, calls) if calls is not None else _by_seconds(ways, seconds)
    samples: dict[str, list[float]] = {way.name: [] for way in ways}
    collects = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for number in range(len(blocks[ways[0].name])):
            # By one in two rounds: turned by one in each, reversing it again would put the same way first.
            turn = number // 2 % len(ways)
            order = [*ways[turn:], *ways[:turn]]
            for way in reversed(order) if number % 2 else order:
                count = blocks[way.name][number]
                way.before()
                with torch.inference_mode():
                    # They bring a way's data back into the caches.
                    way.block_ns(_untimed(count))
                    samples[way.name].append(way.block_ns(count) / count / 1e3)
    finally:
        if collects:
            gc.enable()
    return {way.name: Timing.of(samples[way.name], sum(blocks[way.name])) for way in ways}


def _untimed(count: int) -> int:
    return math.ceil(count / 10) if count > 1 else 0


def _by_calls(ways: Sequence[Timed], calls: int) -> dict[str, list[int]]:
    """The calls of each block: as equal as can be."""
    most = min((way.calls_at_most for way in ways if way.calls_at_most is not None), default=calls)
    rounds = max(min(calls, ROUNDS), math.ceil(calls / max(1, most * 10 // 11 - 1)))
    sizes = [calls // rounds + (number < calls % rounds) for number in range(rounds)]
    for way in ways:
        way.before()
        with torch.inference_mode():
            way.block_ns(min(sizes[0], 3))
    return {way.name: sizes for way in ways}


def _by_seconds(ways: Sequence[Timed], seconds: float) -> dict[str, list[int]]:
    needed_ns = {way.name: _warm_up(way) for way in ways}
    rounds = max(ROUNDS_AT_LEAST, round(seconds * 1e9 / max(BLOCK_NS, *needed_ns.values())))
    counts = {}
    for way in ways:
        most = math.inf if way.calls_at_most is None else max(1, way.calls_at_most * 10 // 11 - 1)
        counts[way.name] = [int(min(most, max(1, round(BLOCK_NS / needed_ns[way.name]))))] * rounds
    return counts


def _warm_up(way: Timed) -> float:
    """Call it for a while; the nanoseconds that a call took at last."""
    calls, spent = 1, 0
    while True:
        way.before()
        with torch.inference_mode():
            elapsed = max(way.block_ns(calls), 1)
        spent += elapsed
        if spent >= WARMUP_NS:
            return elapsed / calls
        if elapsed < BLOCK_NS and (way.calls_at_most is None or calls * 2 <= way.calls_at_most):
            calls *= 2
