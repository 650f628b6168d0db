"""Activations are their formulas."""

import math

import pytest
import torch
from agreement import assert_agrees, assert_captured
from torch import Tensor

from airgraph.errors import UnsupportedArgument

_npu = torch.ops.npu


def _swiglu(x: Tensor, dim: int) -> Tensor:
    a, b = x.tensor_split(2, dim)
    return a / (1 + (-a).exp()) * b


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_swiglu(dtype: torch.dtype, dim: int) -> None:
    x = torch.randn(4, 6, 8).to(dtype)
    assert_agrees(lambda x: _npu.npu_swiglu(x, dim), lambda x: _swiglu(x, dim), x)


_FORMULAS = {
    "npu_gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "npu_fast_gelu": lambda x: x / (1 + (-1.702 * x).exp()),
    "fast_gelu": lambda x: x / (1 + (-1.702 * x.abs()).exp()) * (0.851 * (x - x.abs())).exp(),
    "npu_silu": lambda x: x / (1 + (-x).exp()),
    "npu_silu_": lambda x: x.copy_(x / (1 + (-x).exp())),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", _FORMULAS)
def test_of_one_value(name: str, dtype: torch.dtype) -> None:
    assert_agrees(lambda x: getattr(_npu, name)(x), _FORMULAS[name], torch.randn(3, 7).to(dtype))


def test_gelu_by_tanh() -> None:
    formula = lambda x: x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    assert_agrees(lambda x: _npu.npu_gelu(x, approximate="tanh"), formula, torch.randn(3, 7))


def test_captured() -> None:
    def each(x: Tensor) -> list[Tensor]:
        _npu.npu_silu_(x)
        return [_npu.npu_swiglu(x), _npu.npu_gelu(x), _npu.npu_fast_gelu(x), _npu.fast_gelu(x), _npu.npu_silu(x)]

    assert_captured(each, torch.randn(3, 8))


def test_what_is_not_done_is_named() -> None:
    with pytest.raises(UnsupportedArgument, match=r"npu_swiglu: input must be of an even size in dimension -1"):
        _npu.npu_swiglu(torch.ones(2, 3))
    with pytest.raises(UnsupportedArgument, match="npu_swiglu: dim must be one of 2 dimensions, got 2"):
        _npu.npu_swiglu(torch.ones(2, 4), 2)
    with pytest.raises(UnsupportedArgument, match="approximate must be 'none' or 'tanh', got 'fast'"):
        _npu.npu_gelu(torch.ones(2), approximate="fast")
