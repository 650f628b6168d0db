"""Rotary position embeddings."""

from __future__ import annotations

import torch
from torch import Tensor

from airgraph.npu_operators.declaration import Operator, require

__all__ = ["OPERATORS", "rotated_from_pairs"]


def rotated_from_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Neighbours in the last dimension are turned by one angle; the first of each pair come out before all second ones.

    Computed in float32, rounded once to x's type. cos, sin: broadcastable to x.
    """
    pairs = x.float().unflatten(-1, (-1, 2))
    halves = torch.cat((pairs[..., 0], pairs[..., 1]), -1)
    return _turned(halves, cos, sin).to(x.dtype)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos.float() + torch.cat((-second, first), -1) * sin.float()


def _rotary_mul(
    input: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half", rotate: Tensor | None = None
) -> Tensor:
    name = "npu_rotary_mul"
    require(rotary_mode in ("half", "interleave"), name, "rotary_mode", "'half' or 'interleave'", rotary_mode)
    require(input.dim() == 4 and input.shape[-1] % 2 == 0, name, "input", "of 4 dimensions, the last even", input)
    for argument, given in (("r1", r1), ("r2", r2)):
        fits = given.dim() == 4 and all(a in (1, b) for a, b in zip(given.shape[:3], input.shape[:3], strict=True))
        fits = fits and given.shape[3] == input.shape[3]
        require(fits, name, argument, f"broadcastable to {tuple(input.shape)}", given)
    exact = input.float()
    if rotate is not None:
        size = input.shape[-1]
        require(tuple(rotate.shape) == (size, size), name, "rotate", f"of shape {(size, size)}", rotate)
        return (exact * r1.float() + (exact @ rotate.float()) * r2.float()).to(input.dtype)
    if rotary_mode == "half":
        return _turned(exact, r1, r2).to(input.dtype)
    pairs = exact.unflatten(-1, (-1, 2))
    swapped = torch.stack((-pairs[..., 1], pairs[..., 0]), -1).flatten(-2)
    return (exact * r1.float() + swapped * r2.float()).to(input.dtype)


def _interleave_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    name = "npu_interleave_rope"
    require(x.dim() == 4 and x.shape[-1] % 2 == 0, name, "x", "of 4 dimensions, the last even", x)
    for argument, given in (("cos", cos), ("sin", sin)):
        fits = given.dim() == 4 and all(a in (1, b) for a, b in zip(given.shape, x.shape, strict=True))
        require(fits, name, argument, f"broadcastable to {tuple(x.shape)}", given)
    return rotated_from_pairs(x, cos, sin)


OPERATORS = (
    Operator(
        'npu_rotary_mul(Tensor input, Tensor r1, Tensor r2, str rotary_mode="half", Tensor? rotate=None) -> Tensor',
        _rotary_mul,
    ),
    Operator("npu_interleave_rope(Tensor x, Tensor cos, Tensor sin) -> Tensor", _interleave_rope),
)
