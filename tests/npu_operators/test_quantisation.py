"""Dynamic quantisation: scales from the values, and values within half a step of what they stand for."""

import pytest
import torch
from agreement import assert_captured
from torch import Tensor

from airgraph.errors import UnsupportedArgument

_npu = torch.ops.npu


def _smoothed(x: Tensor, smooth: Tensor | None, ends: list[int] | None) -> Tensor:
    x = x.double()
    if smooth is None:
        return x
    if ends is None:
        return x * smooth.double()
    rows, begin = x.reshape(-1, x.shape[-1]).clone(), 0
    for end, factors in zip(ends, smooth.double(), strict=True):
        rows[begin:end] *= factors
        begin = end
    return rows.reshape(x.shape)


_SMOOTH = [(None, None), (torch.rand(8) + 0.5, None), (torch.rand(3, 8) + 0.5, [2, 3, 6])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("smooth", "ends"), _SMOOTH, ids=["plain", "smooth", "groups"])
def test_symmetric(dtype: torch.dtype, smooth: Tensor | None, ends: list[int] | None) -> None:
    x = torch.randn(2, 3, 8).to(dtype)
    x[0, 1] = 0
    smooth = None if smooth is None else smooth.to(dtype)
    index = None if ends is None else torch.tensor(ends, dtype=torch.int32)
    y, scale = _npu.npu_dynamic_quant(x, smooth_scales=smooth, group_index=index)
    exact = _smoothed(x, smooth, ends)
    assert (y.dtype, scale.dtype, tuple(scale.shape)) == (torch.int8, torch.float32, (2, 3))
    torch.testing.assert_close(scale.double(), exact.abs().amax(-1) / 127, rtol=1e-6, atol=0)
    assert ((y * scale[..., None] - exact).abs() <= scale[..., None] * 0.5001).all()
    assert y[0, 1].eq(0).all()


@pytest.mark.parametrize(("smooth", "ends"), _SMOOTH, ids=["plain", "smooth", "groups"])
def test_asymmetric(smooth: Tensor | None, ends: list[int] | None) -> None:
    x = torch.randn(6, 8) + 1
    index = None if ends is None else torch.tensor(ends, dtype=torch.int32)
    y, scale, offset = _npu.npu_dynamic_quant_asymmetric(
        x, smooth_scales=smooth, group_index=index, dst_type=torch.int8
    )
    exact = _smoothed(x, smooth, ends)
    torch.testing.assert_close(scale.double(), (exact.amax(-1) - exact.amin(-1)) / 255, rtol=1e-5, atol=0)
    assert ((y - offset[:, None]) * scale[:, None] - exact).abs().le(scale[:, None] * 0.5001).all()
    assert y.amin(-1).eq(-128).all()
    assert y.amax(-1).eq(127).all()


def test_captured() -> None:
    both = lambda x, s, i: (
        _npu.npu_dynamic_quant(x, smooth_scales=s, group_index=i, dst_type=torch.int8),
        _npu.npu_dynamic_quant_asymmetric(x),
    )
    assert_captured(both, torch.randn(6, 8), torch.rand(2, 8), torch.tensor([2, 6], dtype=torch.int32))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dst_type": torch.quint4x2}, "dst_type must be torch.int8, got torch.quint4x2"),
        ({"quant_mode": "pertensor"}, "quant_mode must be 'pertoken', got 'pertensor'"),
        ({"dst_type_max": 15.0}, "dst_type_max must be 0.0, all that is done here, got 15.0"),
        ({"smooth_scales": torch.ones(3)}, r"smooth_scales must be of shape \(4,\), got a tensor of shape \(3,\)"),
        ({"group_index": torch.ones(1).int()}, "group_index must be None without smooth_scales"),
    ],
)
def test_what_is_not_done_is_named(settings: dict, message: str) -> None:
    with pytest.raises(UnsupportedArgument, match=f"npu_dynamic_quant: {message}"):
        _npu.npu_dynamic_quant(torch.ones(2, 4), **settings)
