"""Which products with a grouped matrix of int8 become one operator, and what stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import airgraph
from airgraph.runtime.engine.loading import engine_status

pytestmark = pytest.mark.skipif(not engine_status().loaded, reason="the native engine is not here")

N, K, GROUPS = 40, 96, 3


def found_in(function: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, int]:
    with torch.no_grad():
        out = torch.compile(function, backend="airgraph", fullgraph=True, options=options)(*args)
    return out, airgraph.explain().to_dict()["passes"].get("grouped_products", 0)


def arguments(dtype: torch.dtype = torch.bfloat16, rows: int = 2, groups: int = GROUPS) -> list[Tensor]:
    low = torch.randint(-8, 8, (N, K), dtype=torch.int8)
    scale = (torch.rand(N, groups) * 0.1).to(dtype)
    return [torch.randn(rows, K).to(dtype), low, scale, torch.randint(-8, 8, (N, groups), dtype=torch.int8)]


def grouped(x: Tensor, numbers: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    groups = scale.shape[1]
    floats = numbers.view(N, groups, K // groups).to(x.dtype)
    if zero is not None:
        floats = floats - zero.view(N, groups, 1).to(x.dtype)
    return torch.nn.functional.linear(x, (floats * scale.view(N, groups, 1)).view(N, K))


def channels(x: Tensor, numbers: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    return torch.nn.functional.linear(x, scale * (numbers.to(x.dtype) - zero.to(x.dtype)))


def check(out: Tensor, function: Callable[..., Tensor], args: list[Tensor]) -> None:
    exact = function(*(each if each.dtype is torch.int8 else each.double() for each in args))
    ours, eagers = ((each.double() - exact).square().mean().sqrt() for each in (out, function(*args)))
    assert ours <= eagers * 1.02


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("rows", [1, 8])
def test_a_grouped_matrix_is_multiplied_as_it_lies(rows: int, dtype: torch.dtype) -> None:
    args = arguments(dtype, rows)
    out, found = found_in(grouped, *args)
    assert found == 1
    check(out, grouped, args)


def test_without_zeros_too() -> None:
    args = arguments()[:3]
    out, found = found_in(grouped, *args)
    assert found == 1
    check(out, grouped, args)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("rows", [1, 8])
def test_with_a_bias_too(rows: int, dtype: torch.dtype) -> None:
    args = [*arguments(dtype, rows), torch.randn(N).to(dtype)]

    def program(x: Tensor, numbers: Tensor, scale: Tensor, zero: Tensor, bias: Tensor) -> Tensor:
        floats = numbers.view(N, GROUPS, K // GROUPS).to(x.dtype) - zero.view(N, GROUPS, 1).to(x.dtype)
        return torch.nn.functional.linear(x, (floats * scale.view(N, GROUPS, 1)).view(N, K), bias)

    out, found = found_in(program, *args)
    assert found == 1
    check(out, program, args)


def test_a_scale_and_a_zero_of_each_row() -> None:
    args = arguments(groups=1)
    out, found = found_in(channels, *args)
    assert found == 1
    check(out, channels, args)


@pytest.mark.parametrize("what", ["rows", "float weights", "used twice", "written", "other factor", "alike", "exact"])
def test_what_stays_as_it_is(what: str) -> None:
    args = arguments(rows=9 if what == "rows" else 2)

    def function(x: Tensor, numbers: Tensor, scale: Tensor, zero: Tensor) -> Any:
        match what:
            case "alike":
                # One group of numbers stands for all.
                floats = numbers.view(N, GROUPS, -1)[:, :1].contiguous().to(x.dtype) - zero.view(N, GROUPS, 1).to(
                    x.dtype
                )
                return torch.nn.functional.linear(x, (floats * scale.view(N, GROUPS, 1)).view(N, K))
            case "used twice":
                floats = (numbers.view(N, GROUPS, -1).to(x.dtype) * scale.view(N, GROUPS, 1)).view(N, K)
                return torch.nn.functional.linear(x, floats), floats
            case "written":
                out = grouped(x, numbers, scale, zero)
                scale.mul_(2)
                return out
            case "other factor":
                floats = numbers.view(N, GROUPS, -1).to(x.dtype) * scale.view(N, GROUPS, 1)[:1]
                return torch.nn.functional.linear(x, floats.view(N, K))
        return grouped(x, numbers, scale, zero)

    if what == "float weights":
        args[1] = args[1].to(torch.int16)
    expected = function(*(each.clone() for each in args))
    out, found = found_in(function, *args, kernels="exact" if what == "exact" else "fast")
    assert found == 0
    torch.testing.assert_close(out, expected)


def test_the_weight_is_read_anew_at_each_call() -> None:
    args = arguments()
    function = torch.compile(grouped, backend="airgraph", fullgraph=True)
    for _ in range(3):
        check(function(*args), grouped, args)
        args[1].copy_(args[1].flip(0))
        args[2].mul_(1.5)
        args[3].neg_()
