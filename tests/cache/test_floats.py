"""A float that only feeds tensors is an input of the cached graph; any other is one of its constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from cached_functions import cached, equal_to_eager
from torch import Tensor, nn
from torch._dynamo.exc import TorchRuntimeError

X = torch.tensor([0.5, -1.25, 3.0])
VALUES = [0.0, 1.0, -2.5, 1e30, math.inf, 7 / 3, -0.0]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, t: x * t,
        lambda x, t: (x + t) / t,
        lambda x, t: x * (t * 3 + 1) - t,
        lambda x, t: torch.where(x > t, x, x * t),
        lambda x, t: x.long() * t,
        lambda x, t: x.bfloat16() * t,
        lambda x, t: x.double() + t,
    ],
)
def test_one_graph_serves_any_value(tmp_path: Path, function: Callable[..., Any]) -> None:
    call = cached(function, tmp_path)
    for value in VALUES:
        got, expected = call(X, value), function(X, value)
        torch.testing.assert_close(got, expected, equal_nan=True)
        assert got.dtype == expected.dtype
    assert len(call.files) == 1


def test_several_floats_that_are_equal_at_first(tmp_path: Path) -> None:
    call = cached(lambda x, t, u: x * t + u, tmp_path)
    for t, u in ((1.0, 1.0), (0.0, 0.0), (1.0, 2.0)):
        torch.testing.assert_close(call(X, t, u), X * t + u)
    assert len(call.files) == 1


def test_floats_inside_arguments(tmp_path: Path) -> None:
    def within(x: Tensor, options: Any, others: list[float]) -> Tensor:
        return x * options.scale + others[0]

    call = cached(within, tmp_path)
    for value in (0.5, 2.0, 0.25):
        arguments = (X, SimpleNamespace(scale=value), [value * 2])
        torch.testing.assert_close(call(*arguments), within(*arguments))
    assert len(call.files) == 1


class Sampler(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.temperature = 1.0
        self.eps = 1e-5

    def forward(self, x: Tensor) -> Tensor:
        return x / self.temperature + self.eps


def test_a_float_of_a_module_that_changes(tmp_path: Path) -> None:
    model = Sampler()
    call = cached(model.forward, tmp_path)
    for temperature in (1.0, 0.5, 0.25, 3.0, 0.1, 1.0):
        model.temperature = temperature
        torch.testing.assert_close(call(X), model(X))
    assert len(call.files) == 2


def test_a_float_that_is_closed_over_and_changes(tmp_path: Path) -> None:
    factor = 2.0

    def scale(x: Tensor) -> Tensor:
        return x * factor

    call = cached(scale, tmp_path)
    for value in (2.0, 4.0, 8.0, 3.0):
        factor = value
        torch.testing.assert_close(call(X), X * value)
    assert len(call.files) == 2


@pytest.mark.parametrize(
    "function",
    [
        lambda x, t: x * 2 if t > 0.5 else x * 3,
        lambda x, t: nn.functional.layer_norm(x, (3,), eps=t),
        lambda x, t: x.clamp(max=t),
        lambda x, t: (x, t * 2, x * t),
        lambda x, t: x + round(t),
        lambda x, t: x * math.floor(t),
        lambda x, t: torch.full((3,), t) + x,
        lambda x, t: torch.where(x > t, x, -t),
    ],
)
def test_what_decides_more_is_a_constant(tmp_path: Path, function: Callable[..., Any]) -> None:
    equal_to_eager(cached(function, tmp_path), *((X, value) for value in (0.25, 1.0, 3.5, 0.25)))


def test_what_raises_in_python_raises(tmp_path: Path) -> None:
    def inverse(x: Tensor, t: float) -> Tensor:
        return x * (1.0 / t)

    call = cached(inverse, tmp_path, strict=False)
    torch.testing.assert_close(call(X, 2.0), X * 0.5)
    # With torch.compile's own name for it.
    with pytest.raises((ZeroDivisionError, TorchRuntimeError), match="division by zero"):
        call(X, 0.0)


def test_numbers_of_other_types_have_graphs_of_their_own(tmp_path: Path) -> None:
    call = cached(lambda x, t: x * t, tmp_path)
    for value in (1.0, 2, True, 3.5, 5):
        torch.testing.assert_close(call(X, value), X * value)


@pytest.mark.parametrize(("dynamic", "graphs"), [(True, 1), (None, 2), (False, 4)])
def test_as_dynamic_says(tmp_path: Path, dynamic: bool | None, graphs: int) -> None:
    call = cached(lambda x, t: x * t, tmp_path, dynamic=dynamic)
    for value in (0.5, 1.0, 3.5, 0.25):
        torch.testing.assert_close(call(X, value), X * value)
    assert len(call.files) == graphs


@pytest.mark.parametrize(
    "use",
    [
        lambda x, v: (x / v, x.clamp(max=v)),
        lambda x, v: (x * v, torch.full((2,), v)),
        lambda x, v: (x > v, torch.where(x > v, x, v)),
        lambda x, v: (x * v, x.masked_fill(x > 2, v)),
        lambda x, v: (x + v, v - x, x % v, torch.lerp(x, x * 2, v)),
        lambda x, v: x * 2 if v != v else x * v,
        lambda x, v: x * v if v == v else x * 3,
    ],
)
def test_a_float_that_is_used_in_several_ways(use: Any, tmp_path: Path) -> None:
    def function(x: Tensor, v: float) -> Any:
        return use(x, v)

    call, x = cached(function, tmp_path), torch.tensor([1.0, 4.0])
    for value in (1.5, 2.5, 0.5, float("nan"), 3.5, float("nan"), float("inf")):
        torch.testing.assert_close(call(x, value), function(x, value), equal_nan=True)
