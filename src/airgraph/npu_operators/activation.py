"""Activations: each takes one tensor and is computed in float32, rounded once."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from airgraph.npu_operators.declaration import Operator, require

__all__ = ["OPERATORS"]


def _swiglu(input: Tensor, dim: int = -1) -> Tensor:
    require(
        input.dim() and -input.dim() <= dim < input.dim(), "npu_swiglu", "dim", f"one of {input.dim()} dimensions", dim
    )
    require(input.shape[dim] % 2 == 0, "npu_swiglu", "input", f"of an even size in dimension {dim}", input)
    gate, value = input.chunk(2, dim)
    return (F.silu(gate.float()) * value.float()).to(input.dtype)


def _gelu(input: Tensor, approximate: str = "none") -> Tensor:
    require(approximate in ("none", "tanh"), "npu_gelu", "approximate", "'none' or 'tanh'", approximate)
    return F.gelu(input.float(), approximate=approximate).to(input.dtype)


def _fast_gelu(input: Tensor) -> Tensor:
    exact = input.float()
    return (exact * (exact * 1.702).sigmoid()).to(input.dtype)


def _silu(input: Tensor) -> Tensor:
    return F.silu(input)


def _silu_in_place(input: Tensor) -> Tensor:
    return F.silu(input, inplace=True)


OPERATORS = (
    Operator("npu_swiglu(Tensor input, int dim=-1) -> Tensor", _swiglu),
    Operator('npu_gelu(Tensor input, *, str approximate="none") -> Tensor', _gelu),
    Operator("npu_fast_gelu(Tensor input) -> Tensor", _fast_gelu),
    Operator("fast_gelu(Tensor input) -> Tensor", _fast_gelu),
    Operator("npu_silu(Tensor input) -> Tensor", _silu),
    Operator("npu_silu_(Tensor(a!) input) -> Tensor(a!)", _silu_in_place),
)
