"""Root mean square normalisation."""

from __future__ import annotations

import torch
from torch import Tensor

from airgraph.npu_operators.declaration import Operator, require

__all__ = ["OPERATORS", "normalised"]


def normalised(x: Tensor, gamma: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """x over its root mean square across gamma's dimensions, times gamma, and the reciprocal of that root.

    Computed in float32 and rounded once. The second result is float32 and has size 1 in each of gamma's dimensions.
    """
    exact = x.float()
    reciprocal = torch.rsqrt(exact.square().mean(list(range(-gamma.dim(), 0)), keepdim=True) + epsilon)
    return (exact * reciprocal * gamma.float()).to(x.dtype), reciprocal


def _rms_norm(input: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    _check_gamma("npu_rms_norm", input, gamma)
    return normalised(input, gamma, epsilon)


def _add_rms_norm(x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor, Tensor]:
    _check_sum("npu_add_rms_norm", x1, x2, gamma)
    total = x1 + x2
    y, reciprocal = normalised(total, gamma, epsilon)
    return y, reciprocal, total


def _add_rms_norm_cast(
    x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _check_sum("npu_add_rms_norm_cast", x1, x2, gamma)
    total = x1 + x2
    y, reciprocal = normalised(total, gamma, epsilon)
    # The same values, not those before rounding: y1 is a cast of y2.
    return y.float(), y, reciprocal, total


def _add_rms_norm_v2(x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> Tensor:
    """Writes the normalised sum over x1 and the sum over x2."""
    _check_sum("npu_add_rms_norm_v2", x1, x2, gamma)
    total = x1 + x2
    y, reciprocal = normalised(total, gamma, epsilon)
    x1.copy_(y)
    x2.copy_(total)
    return reciprocal


def _add_rms_norm_v2_fake(x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> Tensor:
    _check_sum("npu_add_rms_norm_v2", x1, x2, gamma)
    return x1.new_empty((*x1.shape[: x1.dim() - gamma.dim()], *[1] * gamma.dim()), dtype=torch.float32)


def _check_gamma(operator: str, x: Tensor, gamma: Tensor) -> None:
    require(
        0 < gamma.dim() <= x.dim() and gamma.shape == x.shape[x.dim() - gamma.dim() :],
        operator,
        "gamma",
        f"the last dimensions of the input, whose shape is {tuple(x.shape)}",
        tuple(gamma.shape),
    )


def _check_sum(operator: str, x1: Tensor, x2: Tensor, gamma: Tensor) -> None:
    require(x1.shape == x2.shape, operator, "x2", f"x1's shape {tuple(x1.shape)}", tuple(x2.shape))
    require(x1.dtype == x2.dtype, operator, "x2", f"x1's type {x1.dtype}", x2.dtype)
    _check_gamma(operator, x1, gamma)


_SUM = "Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06"

OPERATORS = (
    Operator("npu_rms_norm(Tensor input, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)", _rms_norm),
    Operator(f"npu_add_rms_norm({_SUM}) -> (Tensor, Tensor, Tensor)", _add_rms_norm),
    Operator(f"npu_add_rms_norm_cast({_SUM}) -> (Tensor, Tensor, Tensor, Tensor)", _add_rms_norm_cast),
    Operator(
        "npu_add_rms_norm_v2(Tensor(a!) x1, Tensor(b!) x2, Tensor gamma, float epsilon=1e-06) -> Tensor",
        _add_rms_norm_v2,
        fake=_add_rms_norm_v2_fake,
    ),
)
