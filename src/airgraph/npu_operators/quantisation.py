"""Quantisation with scales taken from the values themselves."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from airgraph.npu_operators.declaration import Operator, require

__all__ = ["OPERATORS"]

_QUINT4X2 = 16
# What an operator's schema calls an int is a dtype in a script, which PyTorch passes as a number.
_INT8 = (None, torch.int8, 1)


def _dynamic_quant(
    input: Tensor, *, smooth_scales: Tensor | None = None, group_index: Tensor | None = None, dst_type: Any = None,
    quant_mode: str = "pertoken",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    exact = _smoothed("npu_dynamic_quant", input, smooth_scales, group_index, dst_type, quant_mode)
    scale = exact.abs().amax(-1, keepdim=True) / 127
    # A row of zeros has no scale, and zeros it stays.
    quantised = (exact / torch.where(scale == 0, 1, scale)).round().to(torch.int8)
    return quantised, scale.squeeze(-1)


def _dynamic_quant_asymmetric(
    input: Tensor, *, smooth_scales: Tensor | None = None, group_index: Tensor | None = None, dst_type: Any = None,
    quant_mode: str = "pertoken",
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    exact = _smoothed("npu_dynamic_quant_asymmetric", input, smooth_scales, group_index, dst_type, quant_mode)
    largest, smallest = exact.amax(-1, keepdim=True), exact.amin(-1, keepdim=True)
    scale = (largest - smallest) / 255
    # A row of equal values has no scale.
    divisor = torch.where(scale == 0, 1, scale)
    offset = 127 - largest / divisor
    quantised = (exact / divisor + offset).round().clamp(-128, 127).to(torch.int8)
    return quantised, scale.squeeze(-1), offset.squeeze(-1)


def _smoothed(
    name: str, x: Tensor, smooth_scales: Tensor | None, group_index: Tensor | None, dst_type: Any, quant_mode: str
) -> Tensor:
    """What is quantised, in float32."""
    require(dst_type in _INT8, name, "dst_type", "torch.int8", torch.quint4x2 if dst_type == _QUINT4X2 else dst_type)
    require(quant_mode == "pertoken", name, "quant_mode", "'pertoken'", quant_mode)
    require(x.dim() >= 2, name, "input", "of at least 2 dimensions", x)
    exact = x.float()
    if smooth_scales is None:
        require(group_index is None, name, "group_index", "None without smooth_scales", group_index)
        return exact
    width = x.shape[-1]
    if group_index is None:
        require(tuple(smooth_scales.shape) == (width,), name, "smooth_scales", f"of shape {(width,)}", smooth_scales)
        return exact * smooth_scales.float()
    groups = group_index.shape[0]
    fits = group_index.dim() == 1 and tuple(smooth_scales.shape) == (groups, width)
    require(fits, name, "smooth_scales", f"of shape {(groups, width)}, a row for each of group_index", smooth_scales)
    rows = exact.reshape(-1, width)
    # Group g ends before row group_index[g].
    group = torch.bucketize(torch.arange(rows.shape[0], device=x.device), group_index.long(), right=True)
    return (rows * smooth_scales.float()[group.clamp(max=groups - 1)]).reshape(x.shape)


_ARGUMENTS = (
    "(Tensor input, *, Tensor? smooth_scales=None, Tensor? group_index=None, int? dst_type=None, "
    'str quant_mode="pertoken", float dst_type_max=0.)'
)

OPERATORS = (
    Operator(f"npu_dynamic_quant{_ARGUMENTS} -> (Tensor, Tensor)", _dynamic_quant, refused=("dst_type_max",)),
    Operator(
        f"npu_dynamic_quant_asymmetric{_ARGUMENTS} -> (Tensor, Tensor, Tensor)",
        _dynamic_quant_asymmetric,
        refused=("dst_type_max",),
    ),
)
