"""Does a way of running give eager's results?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from airgraph.torch_internals.graphs import tree_leaves

__all__ = ["TOLERANCE", "largest_difference", "values"]

# Of the largest magnitude in eager's tensor: kernels that add up in another order differ by this much and no more.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
TOLERANCE_OF_OTHERS = 5e-2


def values(result: Any, written: Sequence[Tensor]) -> list[Any]:
    """What a call has returned and what it has written, as copies."""
    return [leaf.detach().clone() if isinstance(leaf, Tensor) else leaf for leaf in (*tree_leaves(result), *written)]


def largest_difference(found: Sequence[Any], expected: Sequence[Any]) -> tuple[float, str | None]:
    """The largest absolute difference of a number, and in words what is not equal; None where all agree.

    found, expected: what `values` has given. Numbers of integers and booleans must be equal.
    """
    if len(found) != len(expected):
        return 0.0, f"{len(found)} values instead of {len(expected)}"
    largest = 0.0
    for position, (left, right) in enumerate(zip(found, expected, strict=True)):
        where = f"value {position + 1} of {len(expected)}"
        if isinstance(left, Tensor) and isinstance(right, Tensor):
            difference, problem = _of_tensors(left, right)
            largest = max(largest, difference)
            if problem is not None:
                return largest, f"{where} {problem}"
        elif isinstance(right, (bool, int, float, str)) and left != right and right == right:
            return largest, f"{where} is {left!r} instead of {right!r}"
    return largest, None


def _of_tensors(left: Tensor, right: Tensor) -> tuple[float, str | None]:
    if (left.shape, left.dtype) != (right.shape, right.dtype):
        kinds = [f"{str(each.dtype).removeprefix('torch.')}{list(each.shape)}" for each in (left, right)]
        return 0.0, f"is {kinds[0]} instead of {kinds[1]}"
    left, right = (each if each.layout is torch.strided else each.to_dense() for each in (left, right))
    if not right.numel():
        return 0.0, None
    if not (right.is_floating_point() or right.is_complex()):
        differing = int((left != right).sum())
        return 0.0, f"differs in {differing} of {right.numel()} numbers" if differing else None
    wide = torch.complex128 if right.is_complex() else torch.float64
    # On the CPU: not every device has wide numbers.
    ours, theirs = left.cpu().to(wide), right.cpu().to(wide)
    equal = (ours == theirs) | (ours.isnan() & theirs.isnan())
    difference = torch.where(equal, 0.0, (ours - theirs).abs())
    finite = theirs[theirs.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() else 0.0
    largest = float(difference.max())
    allowed = TOLERANCE.get(right.dtype, TOLERANCE_OF_OTHERS) * max(scale, 1e-6)
    if largest <= allowed:
        return largest, None
    return largest, f"differs by up to {largest:.3g}, where eager's numbers go up to {scale:.3g}"
