"""Memory that is recorded for a stream lives to the end of that stream, by torch.compile and by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import airgraph
from airgraph import scope
from airgraph.memory.plan import Plan, assign_offsets
from airgraph.runtime.cpu import assemble


def _program(x: Tensor, *, is_recorded: bool) -> Tensor:
    """Without the record, what is made first leaves its memory to the last of its size."""
    done = airgraph.Event("done")
    with scope.stream("side"):
        beside = x[:1] + 1
        done.record()
    made = x + 1
    if is_recorded:
        airgraph.ops.record_stream(made, "side")
    later = (made.sum() + x).exp()
    del made
    last = (later.sum() + x).exp().sum()
    done.wait()
    return last + beside


def _compiled(x: Tensor, *, is_recorded: bool) -> Tensor:
    torch._dynamo.reset()
    options = {"kernels": "exact"}
    return torch.compile(_program, backend="airgraph", fullgraph=True, options=options)(x, is_recorded=is_recorded)


def _by_hand(x: Tensor, *, is_recorded: bool) -> Tensor:
    captured = airgraph.cpu.CPUGraph(kernels="exact")
    with airgraph.cpu.graph(captured):
        result = _program(x, is_recorded=is_recorded)
    captured.replay()
    return result


@torch.no_grad()
@pytest.mark.parametrize("run", [_compiled, _by_hand])
def test_it_is_no_later_buffers(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    peaks: list[int] = []

    def assign(*args: Any, **kwargs: Any) -> Plan:
        plan = assign_offsets(*args, **kwargs)
        peaks.append(plan.peak)
        return plan

    monkeypatch.setattr(assemble, "assign_offsets", assign)
    x = torch.randn(1 << 14)
    for is_recorded in (False, True):
        torch.testing.assert_close(run(x, is_recorded=is_recorded), _program(x, is_recorded=False))
    without, recorded = peaks
    assert recorded >= without + x.nbytes
