"""An exception of a signal handler falls anywhere in a capture, and the device is as before."""

from __future__ import annotations

import gc
import signal
import time
from types import FrameType

import torch
from torch import Tensor

import airgraph


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
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 20
    airgraph.reset()
    torch.testing.assert_close(call(x, w).cpu(), expected)
