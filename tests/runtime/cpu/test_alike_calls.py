"""Calls that are alike are worked out once in a capture; those that only look alike are not taken for one another."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import airgraph
from airgraph.cpu import CPUGraph, graph
from airgraph.runtime.cpu import recorder


def _propagations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []
    forms = recorder.result_forms

    def counted(op: Any, *given: Any) -> Any:
        made.append(str(op))
        return forms(op, *given)

    monkeypatch.setattr(recorder, "result_forms", counted)
    return made


@torch.no_grad()
def test_a_layer_like_one_before_is_not_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = _propagations(monkeypatch)
    x, cache, g = torch.randn(3, 4), torch.zeros(3, 4), CPUGraph()
    with graph(g):
        out = x
        for _ in range(5):
            cache.add_(out)
            out = (out * 2).relu() + cache
    assert made == ["aten.add_.Tensor", "aten.mul.Tensor", "aten.relu.default", "aten.add.Tensor"]
    g.replay()
    twin, expected = torch.zeros(3, 4), x
    for _ in range(5):
        twin.add_(expected)
        expected = (expected * 2).relu() + twin
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(cache, twin)


@torch.no_grad()
def test_numbers_that_are_equal_and_of_other_types_give_other_results() -> None:
    x, g = torch.tensor([True, False]), CPUGraph()
    with graph(g):
        results = [torch.add(x, other) for other in (True, 1, 1.0)]
    g.replay()
    for ours, other in zip(results, (True, 1, 1.0), strict=True):
        assert ours.dtype == torch.add(x, other).dtype and torch.equal(ours, torch.add(x, other))


@torch.no_grad()
def test_an_argument_that_is_written_and_read_is_not_two() -> None:
    def program(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x.add_(y).clone(), x.add_(x).clone()

    call = torch.compile(program, backend="airgraph", fullgraph=True)
    given, expected = [torch.randn(4), torch.randn(4)], None
    expected = [each.clone() for each in given]
    for _ in range(3):
        torch.testing.assert_close(call(*given), program(*expected))
        torch.testing.assert_close(given, expected)
    assert airgraph.explain().to_dict()["counters"]["eager_calls"] == 0


@torch.no_grad()
def test_an_empty_out_is_extended_each_time() -> None:
    x, g = torch.randn(3), CPUGraph()
    with graph(g):
        outs = [torch.sin(x, out=torch.empty(0)) for _ in range(3)]
    g.replay()
    assert all(torch.equal(out, x.sin()) for out in outs)


@torch.no_grad()
def test_another_default_dtype_gives_other_results() -> None:
    x, g, before = torch.tensor([1, 4]), CPUGraph(), torch.get_default_dtype()
    try:
        with graph(g):
            single = x.sqrt()
            torch.set_default_dtype(torch.float64)
            double = x.sqrt()
    finally:
        torch.set_default_dtype(before)
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
