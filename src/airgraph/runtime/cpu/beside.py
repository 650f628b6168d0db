"""Whether the streams of a recording run beside one another, on how many threads, and what each thread may take."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from airgraph.program.operators import is_of_torch
from airgraph.runtime.cpu.cost import HAND_OVER_NS, estimated_ns
from airgraph.runtime.cpu.schedule import Segment, makespan, segments_of
from airgraph.runtime.cpu.tape import Recording

__all__ = ["Beside", "OneAfterAnother", "beside_one_another", "threads_of_a_call"]

# Less than this is not worth keeping a second core awake for.
_LEAST_GAIN_NS = 300.0
# About what it costs to wake a thread, on both sides.
_WAKING_NS = 20_000.0
# Streams run beside one another where that takes about as long as one stream on all threads.
_ABOUT_AS_LONG = 1.1


@dataclass(frozen=True, slots=True)
class Beside:
    """threads: how many at most, that which replays included. is_worth_waking: also those that are asleep."""

    segments: tuple[Segment, ...]
    threads: int
    is_worth_waking: bool


@dataclass(frozen=True, slots=True)
class OneAfterAnother:
    """reason: why; empty where there is one stream."""

    reason: str


def beside_one_another(
    recording: Recording, max_streams: int | None = None, tiers: Sequence[str] = ()
) -> Beside | OneAfterAnother:
    """One after another where there is one stream or core, or running them together costs more than it brings.

    It brings nothing, either, where the threads that the streams would divide take less for one call after another.

    max_streams: beside the default one that run at the same time; None: one a core in all. tiers: by which each call
    is served, where that is known.
    """
    threads = _threads(recording, max_streams)
    if threads < 2:
        return OneAfterAnother(_why_one_thread(recording, max_streams))
    by_own_kernels = {step for step, tier in enumerate(tiers) if tier == "own"}
    on_caller = [
        step for step, call in enumerate(recording.calls) if step not in by_own_kernels and not is_of_torch(call.op)
    ]
    segments = segments_of(recording.order, on_caller)
    intra_op = min(torch.get_num_threads(), _cores())
    share = threads_of_a_call(recording, max_streams)
    # Our own kernels share their work only where one stream runs.
    costs = [estimated_ns(call, 1 if i in by_own_kernels else share) for i, call in enumerate(recording.calls)]
    together = makespan(segments, costs, threads, HAND_OVER_NS)
    on_one = sum(costs)
    on_one_with_all = sum(estimated_ns(call, intra_op) for call in recording.calls)
    gain = on_one - together
    estimate = f"estimated {_us(together)} beside one another"
    if gain < _LEAST_GAIN_NS:
        return OneAfterAnother(f"{estimate}, {_us(on_one)} one after another")
    if _ABOUT_AS_LONG * on_one_with_all - together < _LEAST_GAIN_NS:
        return OneAfterAnother(
            f"{estimate}, {_us(on_one_with_all)} one after another with {intra_op} threads for each operator"
        )
    return Beside(tuple(segments), threads, gain > _WAKING_NS)


def _us(ns: float) -> str:
    return f"{ns / 1e3:.1f} us"


def _why_one_thread(recording: Recording, max_streams: int | None) -> str:
    if recording.order.streams < 2:
        return ""
    return "this process may use one processor" if max_streams is None else f"max_streams={max_streams}"


def threads_of_a_call(recording: Recording, max_streams: int | None = None) -> int:
    """That a call may use where streams, if there are several, run beside one another and divide them."""
    return max(1, min(torch.get_num_threads(), _cores()) // _threads(recording, max_streams))


def _threads(recording: Recording, max_streams: int | None) -> int:
    return min(recording.order.streams, _cores() if max_streams is None else max_streams + 1)


def _cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
