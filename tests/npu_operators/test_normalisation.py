"""Normalisation is a division by the root mean square, and the second version writes its arguments."""

import pytest
import torch
from agreement import assert_agrees, assert_captured
from torch import Tensor

from airgraph.errors import UnsupportedArgument

_npu = torch.ops.npu
_TYPES = [torch.float32, torch.float16, torch.bfloat16]


def _norm(x: Tensor, gamma: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    dims = tuple(range(x.dim() - gamma.dim(), x.dim()))
    root = (x.pow(2).sum(dims, keepdim=True) / gamma.numel() + epsilon).sqrt()
    return x / root * gamma, 1 / root


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("last", [1, 2])
def test_root_mean_square(dtype: torch.dtype, last: int) -> None:
    x = torch.randn(3, 5, 8).to(dtype)
    gamma = torch.randn(x.shape[-last:]).to(dtype)
    assert_agrees(lambda x, g: _npu.npu_rms_norm(x, g), lambda x, g: _norm(x, g, 1e-6), x, gamma)
    assert_agrees(lambda x, g: _npu.npu_rms_norm(x, g, epsilon=0.5), lambda x, g: _norm(x, g, 0.5), x, gamma)


def _sum(x1: Tensor, x2: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y, root = _norm(x1 + x2, gamma, 0.1)
    return y, root, x1 + x2


def _sum_cast(x1: Tensor, x2: Tensor, gamma: Tensor) -> tuple[Tensor, ...]:
    y, root, total = _sum(x1, x2, gamma)
    return y, y, root, total


def _sum_written(x1: Tensor, x2: Tensor, gamma: Tensor) -> Tensor:
    y, root, total = _sum(x1, x2, gamma)
    x1.copy_(y)
    x2.copy_(total)
    return root


_OF_SUMS = {"npu_add_rms_norm": _sum, "npu_add_rms_norm_cast": _sum_cast, "npu_add_rms_norm_v2": _sum_written}


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("name", _OF_SUMS)
def test_sums(name: str, dtype: torch.dtype) -> None:
    x1, x2, gamma = (torch.randn(shape).to(dtype) for shape in ((2, 3, 8), (2, 3, 8), (8,)))
    assert_agrees(lambda *args: getattr(_npu, name)(*args, 0.1), _OF_SUMS[name], x1, x2, gamma, slack=2)


@pytest.mark.parametrize("name", ["npu_rms_norm", *_OF_SUMS])
def test_captured(name: str) -> None:
    x = [torch.randn(2, 8)] if name == "npu_rms_norm" else [torch.randn(2, 8), torch.randn(2, 8)]
    assert_captured(lambda *args: getattr(_npu, name)(*args), *x, torch.randn(8))


def test_a_cast_result_is_a_float32_of_the_rounded_one() -> None:
    x, gamma = torch.randn(4, 8).half(), torch.randn(8).half()
    cast, rounded, _, _ = _npu.npu_add_rms_norm_cast(x, x, gamma)
    assert cast.dtype == torch.float32
    assert torch.equal(cast, rounded.float())


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 8), (2, 8), (4,)), r"npu_add_rms_norm: gamma must be the last dimensions .* \(2, 8\), got \(4,\)"),
        (((2, 8), (1, 8), (8,)), r"npu_add_rms_norm: x2 must be x1's shape \(2, 8\), got \(1, 8\)"),
    ],
)
def test_shapes_that_do_not_fit_are_named(shapes: tuple, message: str) -> None:
    with pytest.raises(UnsupportedArgument, match=message):
        _npu.npu_add_rms_norm(*(torch.ones(shape) for shape in shapes))


def test_gradients_are_those_of_the_formula() -> None:
    x, gamma = torch.randn(3, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    _npu.npu_rms_norm(x, gamma)[0].square().sum().backward()
    ours = x.grad, gamma.grad
    x.grad = gamma.grad = None
    _norm(x, gamma, 1e-6)[0].square().sum().backward()
    torch.testing.assert_close(ours, (x.grad, gamma.grad))
