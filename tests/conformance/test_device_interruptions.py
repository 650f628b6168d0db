"""An exception of a signal handler falls anywhere in a capture, and the device is as before."""

from __future__ import annotations

import gc
import signal
import time
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor

import airgraph
from airgraph.runtime.registry import runtime_for


class Interrupted(Exception):
    pass


def program(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).relu() + x


def test_signals_in_captures(device: str) -> None:
    call = torch.compile(program, backend="airgraph", dynamic=False, options={"force_recapture": True})
    x, w = torch.rand(4, 4).to(device), torch.rand(4, 4).to(device)
    expected = program(x, w).cpu()
    armed = [False]

    def interrupt(number: int, frame: FrameType | None) -> None:
        if armed[0]:
            armed[0] = False
            raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    interrupted = 0
    try:
        with torch.no_grad():
            torch.testing.assert_close(call(x, w).cpu(), expected)
            begin = time.monotonic()
            call(x, w)
            usual = time.monotonic() - begin
            for step in range(150):
                armed[0] = True
                try:
                    signal.setitimer(signal.ITIMER_REAL, max(1e-5, usual * 1.1 * step / 150))
                    call(x, w)
                    armed[0] = False
                except Interrupted:
                    interrupted += 1
                signal.setitimer(signal.ITIMER_REAL, 0)
                assert gc.isenabled()
                if step % 10 == 0:
                    torch.testing.assert_close(call(x, w).cpu(), expected)
            torch.testing.assert_close(call(x, w).cpu(), expected)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 20
    airgraph.reset()
    torch.testing.assert_close(call(x, w).cpu(), expected)


class Interrupting:
    """A device's graph; where `when` says so, a signal falls as soon as the device has done a step of it."""

    def __init__(self, graph: Any, when: set[str]) -> None:
        self._graph, self._when = graph, when

    def __getattr__(self, name: str) -> Any:
        step = getattr(self._graph, name)

        def then_interrupted(*args: Any, **kwargs: Any) -> Any:
            result = step(*args, **kwargs)
            if name in self._when:
                self._when.discard(name)
                raise Interrupted
            return result

        return then_interrupted


@pytest.mark.parametrize("step", ["capture_begin", "capture_end", "pool", "reset"])
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
def test_a_signal_as_soon_as_the_device_has_done_a_step(
    device: str, step: str, is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exceptions are kept, and with them what their frames hold."""
    if device == "cpu":
        pytest.skip("its graphs are not captured in steps of a device")
    runtime = runtime_for(device)
    when: set[str] = set()
    new_graph = runtime.new_graph
    monkeypatch.setattr(runtime, "new_graph", lambda: Interrupting(new_graph(), when))
    call = torch.compile(program, backend="airgraph", dynamic=False, options={"force_recapture": True})
    x, w = torch.rand(4, 4).to(device), torch.rand(4, 4).to(device)
    expected = program(x, w).cpu()
    kept = []
    with torch.no_grad():
        if not is_first:
            torch.testing.assert_close(call(x, w).cpu(), expected)
        for _ in range(3):
            # The last two happen in what is made up for after a signal.
            when.update({"capture_end", step})
            for _ in range(2):
                try:
                    call(x, w)
                except Interrupted as error:
                    kept.append(error)
            when.clear()
            torch.testing.assert_close(call(x, w).cpu(), expected)
        assert len(kept) >= 3
        airgraph.reset()
        torch.testing.assert_close(call(x, w).cpu(), expected)
    kept.clear()
    getattr(torch, device).empty_cache()


@pytest.mark.parametrize("step", ["start_routing", "stop_routing"])
def test_a_signal_as_soon_as_allocations_are_routed(device: str, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The allocator would look for a pool that is gone, at any allocation after it."""
    if device == "cpu":
        pytest.skip("no allocator of its is routed")
    runtime = runtime_for(device)
    do_step, stop, due, routed = getattr(runtime, step), runtime.stop_routing, [False], []

    def interrupted(*args: Any) -> None:
        routed[:] = args
        # Before it is done where something is begun to be undone, after it where something is begun.
        if step == "start_routing":
            do_step(*args)
        if due[0]:
            due[0] = False
            raise Interrupted
        if step == "stop_routing":
            do_step(*args)

    monkeypatch.setattr(runtime, step, interrupted)
    call = torch.compile(program, backend="airgraph", dynamic=False, options={"force_recapture": True})
    x, w = torch.rand(4, 4).to(device), torch.rand(4, 4).to(device)
    expected = program(x, w).cpu()
    for _ in range(3):
        due[0] = True
        with torch.no_grad(), pytest.raises(Interrupted):
            call(x, w)
        with pytest.raises(RuntimeError):
            stop(*routed)
        # The pool goes with its last graph.
        airgraph.reset()
        torch._dynamo.reset()
        gc.collect()
        getattr(torch, device).empty_cache()
        x, w = x.cpu().to(device), w.cpu().to(device)
        with torch.no_grad():
            torch.testing.assert_close(call(x, w).cpu(), expected)


def test_guards_of_torch_that_an_interrupted_capture_leaves(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard of torch that is entered, but whose exit never runs, puts back its own state when it dies."""
    if device == "cpu":
        pytest.skip("its captures need no such guard")
    # What a capture will take is predicted on fake tensors only where there is a budget.
    options = {"force_recapture": True, "memory_budget": 2**30}
    call = torch.compile(program, backend="airgraph", dynamic=False, options=options)
    x, w = torch.rand(4, 4).to(device), torch.rand(4, 4).to(device)
    expected = program(x, w).cpu()
    # As if it stood in torch: who debugs keeps the frames of the user's own files.
    names: dict[str, Any] = {"enter": torch.inference_mode.__enter__, "Interrupted": Interrupted}
    exec(compile("def interrupted(mode):\n    enter(mode)\n    raise Interrupted", torch.__file__, "exec"), names)
    with torch.no_grad():
        call(x, w)
        with monkeypatch.context() as patch:
            patch.setattr(torch.inference_mode, "__enter__", names["interrupted"])
            with pytest.raises(Interrupted) as caught:
                call(x, w)
        del caught
        gc.collect()
        assert torch.isfinite(call(x, w).cpu()).all()
        torch.testing.assert_close(call(x, w).cpu(), expected)
        assert not torch.is_inference_mode_enabled()
