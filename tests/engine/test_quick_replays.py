"""A replay that is over at once keeps Python's lock, which takes a good part of its time to give up; no other does."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
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


def test_one_whose_loops_threads_share_is_not() -> None:
    # The thread that replays waits for the others, which may not be running.
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        x, weight = torch.randn(1, 512), torch.randn(512, 512)
        tape = engine().Tape()
        append(tape, "aten::mm", x, weight.t(), out=torch.empty(1, 512))
        tape.replay()
        assert tape.shared_loops == 1
        append(tape, "aten::relu", torch.randn(4), out=torch.empty(4))
        assert not _becomes_quick(tape)
    finally:
        torch.set_num_threads(before)


class _Other:
    """Another thread, which runs only where this one gives up Python's lock by itself."""

    def __enter__(self) -> _Other:
        self._turns, self._is_done = 0, False
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(1000)
        self._thread = threading.Thread(target=self._take_turns)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_done = True
        sys.setswitchinterval(self._interval)
        self._thread.join()

    def _take_turns(self) -> None:
        while not self._is_done:
            self._turns += 1
            time.sleep(0)

    def runs_during(self, call: Callable[[], object]) -> bool:
        before = self._turns
        call()
        return self._turns != before


def _by_hand(x: Tensor, count: int) -> airgraph.cpu.CPUGraph:
    graph = airgraph.cpu.CPUGraph()
    with airgraph.cpu.graph(graph):
        for _ in range(count):
            x = x @ x
    return graph


def test_other_threads_run_while_a_long_graph_replays() -> None:
    graph = _by_hand(torch.randn(500, 500), 3)
    graph.replay()
    with _Other() as other:
        assert all(other.runs_during(graph.replay) for _ in range(20))


def test_a_quick_graph_keeps_the_lock() -> None:
    graph = _by_hand(torch.randn(4, 4), 1)
    for _ in range(100):
        graph.replay()
    with _Other() as other:
        # One that was held up where it was measured gives it up until it is measured again.
        assert any(not other.runs_during(lambda: [graph.replay() for _ in range(2000)]) for _ in range(200))


def _by_door(function: Callable[[Tensor], Tensor], folder: Path, *shapes: Tensor) -> Callable[[Tensor], Tensor]:
    call = airgraph.inference.cache_compile(function, cache_dir=folder, dynamic=False, strict=True)
    for x in shapes:
        for _ in range(10):
            call(x)
    return call


def test_a_quick_cached_call_keeps_the_lock(tmp_path: Path) -> None:
    x = torch.randn(4)
    call = _by_door(lambda x: x + 1, tmp_path, x)
    with _Other() as other:
        assert any(not other.runs_during(lambda: [call(x) for _ in range(2000)]) for _ in range(200))


def test_others_run_while_much_is_copied_for_a_quick_replay(tmp_path: Path) -> None:
    inputs = [torch.randn(1 << 23) for _ in range(2)]
    call = _by_door(lambda x: x[:4] + 1, tmp_path, *inputs)
    with _Other() as other:
        # Another tensor at each call, so that none is where the last was.
        assert all(other.runs_during(lambda: [call(x) for x in inputs]) for _ in range(20))
