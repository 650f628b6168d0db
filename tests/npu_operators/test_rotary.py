"""Rotations are those of complex numbers, by halves or by neighbours."""

import pytest
import torch
from agreement import assert_agrees, assert_captured
from torch import Tensor

from airgraph.errors import UnsupportedArgument

_npu = torch.ops.npu
_TYPES = [torch.float32, torch.float16, torch.bfloat16]


def _angles(shape: tuple[int, ...], mode: str) -> tuple[Tensor, Tensor]:
    """Cosines and sines, of which those of one pair are equal."""
    angle = torch.randn(*shape[:-1], shape[-1] // 2)
    angle = torch.cat((angle, angle), -1) if mode == "half" else angle.repeat_interleave(2, -1)
    return angle.cos(), angle.sin()


def _as_complex(x: Tensor, cos: Tensor, sin: Tensor, mode: str, out: str) -> Tensor:
    half = x.shape[-1] // 2
    first, second = (x[..., :half], x[..., half:]) if mode == "half" else (x[..., ::2], x[..., 1::2])
    pick = slice(0, half) if mode == "half" or out == "half" else slice(0, None, 2)
    turned = torch.complex(first, second) * torch.complex(cos[..., pick], sin[..., pick])
    if out == "half":
        return torch.cat((turned.real, turned.imag), -1)
    return torch.stack((turned.real, turned.imag), -1).flatten(-2)


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("mode", ["half", "interleave"])
@pytest.mark.parametrize("shape", [(1, 1, 5, 8), (2, 1, 5, 8), (2, 3, 5, 8)])
def test_rotary_mul(dtype: torch.dtype, mode: str, shape: tuple[int, ...]) -> None:
    x = torch.randn(2, 3, 5, 8).to(dtype)
    cos, sin = (each.to(dtype) for each in _angles(shape, mode))
    assert_agrees(
        lambda x, c, s: _npu.npu_rotary_mul(x, c, s, mode),
        lambda x, c, s: _as_complex(x, c, s, mode, mode),
        x,
        cos,
        sin,
    )


@pytest.mark.parametrize("mode", ["half", "interleave"])
def test_rotary_mul_by_a_matrix_that_does_the_same(mode: str) -> None:
    x, size = torch.randn(2, 5, 3, 8), 8
    matrix = torch.zeros(size, size)
    for i in range(size // 2):
        a, b = (i, i + size // 2) if mode == "half" else (2 * i, 2 * i + 1)
        matrix[b, a], matrix[a, b] = -1, 1
    cos, sin = _angles((1, 5, 1, size), mode)
    by_matrix = _npu.npu_rotary_mul(x, cos, sin, mode, matrix)
    torch.testing.assert_close(by_matrix, _npu.npu_rotary_mul(x, cos, sin, rotary_mode=mode))


@pytest.mark.parametrize("dtype", _TYPES)
def test_interleave_rope_takes_neighbours_and_gives_halves(dtype: torch.dtype) -> None:
    x = torch.randn(2, 3, 5, 8).to(dtype)
    cos, sin = (each.to(dtype) for each in _angles((2, 1, 5, 8), "half"))
    assert_agrees(
        lambda x, c, s: _npu.npu_interleave_rope(x, c, s),
        lambda x, c, s: _as_complex(x, c, s, "interleave", "half"),
        *(x, cos, sin),
    )


def test_captured() -> None:
    x, (cos, sin) = torch.randn(2, 3, 5, 8), _angles((1, 1, 5, 8), "half")
    both = lambda x, c, s: (_npu.npu_rotary_mul(x, c, s), _npu.npu_interleave_rope(x, c, s))
    assert_captured(both, x, cos, sin)


def test_what_is_not_done_is_named() -> None:
    x = torch.ones(1, 1, 2, 4)
    with pytest.raises(UnsupportedArgument, match="rotary_mode must be 'half' or 'interleave', got 'quarter'"):
        _npu.npu_rotary_mul(x, x, x, "quarter")
    with pytest.raises(UnsupportedArgument, match=r"r2 must be broadcastable to \(1, 1, 2, 4\)"):
        _npu.npu_rotary_mul(x, x, torch.ones(4))
