"""A replay that is over at once keeps Python's lock, which takes a good part of its time to give up; no other does."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from own_calls import append
from torch import Tensor

import airgraph
from airgraph.runtime.engine.loading import engine, engine_status

pytestmark = pytest.mark.skipif(not engine_status().loaded, reason="the native engine is not here")


@torch.library.custom_op("test_quick_replays::twice", mutates_args=())
def _twice(x: Tensor) -> Tensor:
    return x * 2


def _tape(*calls: tuple[Any, ...]) -> Any:
    tape = engine().Tape()
    for name, *args in calls:
        append(tape, name, *args, out=torch.empty_like(args[0]))
    return tape


def _becomes_quick(tape: Any) -> bool:
    """Within many replays, as a machine may be busy at those that are measured."""
    for _ in range(2000):
        tape.replay()
        if tape.is_quick:
            return True
    return False


def test_a_short_one_of_kernels_is() -> None:
    tape = _tape(("aten::relu", torch.randn(4)))
    assert not tape.is_quick
    assert _becomes_quick(tape)


def test_a_long_one_is_not() -> None:
    x = torch.randn(1000, 1000)
    tape = _tape(("aten::mm", x, x))
    for _ in range(10):
        tape.replay()
        assert not tape.is_quick


def test_one_that_becomes_long_is_not_any_more() -> None:
    # As one does whose memory is driven out of the caches; a tape that grows is simpler to have.
    tape = _tape(("aten::relu", torch.randn(4)))
    assert _becomes_quick(tape)
    x = torch.randn(1000, 1000)
    append(tape, "aten::mm", x, x, out=torch.empty_like(x))
    for _ in range(64):
        tape.replay()
    assert not tape.is_quick


def test_one_that_calls_what_may_wait_is_not() -> None:
    # Whatever is registered with the dispatcher may wait for a thread that needs Python's lock.
    tape = _tape(("test_quick_replays::twice", torch.randn(4)))
    assert not _becomes_quick(tape)


def test_one_whose_streams_run_beside_one_another_is_not() -> None:
    tape = _tape(*[("aten::relu", torch.randn(4))] * 2)
    segments = [engine().Segment(stream=number, calls=[number], waits=[], on_caller=number == 0) for number in range(2)]
    tape.run_beside(segments, 2, False)
    assert not _becomes_quick(tape)


def test_other_threads_run_while_a_long_one_replays() -> None:
    x = torch.randn(1500, 1500)
    pool = airgraph.cpu.CPUGraph()
    with airgraph.cpu.graph(pool):
        y = x @ x
        for _ in range(10):
            y = y @ x
    counted, done = [0], threading.Event()

    def count() -> None:
        while not done.is_set():
            counted[0] += 1

    other = threading.Thread(target=count)
    pool.replay()
    other.start()
    try:
        before = counted[0]
        pool.replay()
        # While one thread waits for the lock, the other gives it up each 5 ms and counts hundreds of times in between.
        assert counted[0] > before
    finally:
        done.set()
        other.join()
