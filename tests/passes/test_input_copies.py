"""Where an argument is written, and where copies that a pass puts in stand, in a graph of several streams."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from custom_operators import add_into
from torch import Tensor

import airgraph
from airgraph import scope


def _last_on_its_stream(x: Tensor, y: Tensor) -> Tensor:
    value, ready = y.exp(), airgraph.Event("ready")
    ready.record()
    with scope.stream("side"):
        ready.wait()
        x.copy_(y @ y + value)
    return value


def _old_values_are_used_later(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    with scope.stream("side"):
        old = x.clone()
        x.fill_(0.25)
        product = y @ y
        return torch.relu(old) + product, x.sum()


def _old_values_are_used_on_another_stream(x: Tensor, y: Tensor) -> Tensor:
    old, written = x.clone(), airgraph.Event("written")
    x.fill_(0.25)
    written.record()
    with scope.stream("side"):
        written.wait()
        return y @ torch.relu(old)


def _an_argument_becomes_another(x: Tensor, y: Tensor) -> Tensor:
    with scope.stream("side"):
        x.copy_(y)
        return x @ y


def _a_custom_operator_writes_an_intermediate(x: Tensor, y: Tensor) -> Tensor:
    with scope.stream("side"):
        made = x @ y
        add_into(made, y)
        add_into(made[1:], y[1:])
        return made * 2


def _a_copy_is_read_after_others_may_write(x: Tensor, y: Tensor) -> Tensor:
    copied = airgraph.Event("copied")
    with scope.stream("side"):
        old = x.clone()
        copied.record()
        made = (old @ y).sin()
    copied.wait()
    x.add_(1)
    return made


def _a_cast_is_read_after_others_may_write(x: Tensor, y: Tensor) -> Tensor:
    copied = airgraph.Event("copied")
    with scope.stream("side"):
        old = x.to(torch.float32, copy=True)
        copied.record()
        made = old + y
    copied.wait()
    x.zero_()
    return made


def _a_snapshot_of_a_cache_is_read_after_it_is_written(x: Tensor, y: Tensor) -> Tensor:
    with scope.stream("side"):
        old = x.clone()
        taken = airgraph.ops.record()
        made = old * y
    airgraph.ops.wait([taken])
    x.index_copy_(0, torch.tensor([1]), y[:1])
    return made


@torch.no_grad()
@pytest.mark.parametrize(
    "program",
    [
        _last_on_its_stream,
        _old_values_are_used_later,
        _old_values_are_used_on_another_stream,
        _an_argument_becomes_another,
        _a_custom_operator_writes_an_intermediate,
        _a_copy_is_read_after_others_may_write,
        _a_cast_is_read_after_others_may_write,
        _a_snapshot_of_a_cache_is_read_after_it_is_written,
    ],
)
def test_no_copy_makes_a_race(program: Callable[[Tensor, Tensor], object]) -> None:
    torch._dynamo.reset()
    call = torch.compile(program, backend="airgraph", fullgraph=True, options={"stream_check": "error"})
    for _ in range(3):
        given = torch.randn(8, 8), torch.randn(8, 8)
        expected = [tensor.clone() for tensor in given]
        torch.testing.assert_close(call(*given), program(*expected))
        torch.testing.assert_close(list(given), expected)
