"""A view given by strides and an offset, as views that hold wherever the tensor lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from airgraph.passes.analysis.reshaped_views import Step, through_blocks
from airgraph.torch_internals.symbolic_shapes import statically_known_true

__all__ = ["Step", "plain_views"]

_aten = torch.ops.aten


def plain_views(base: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], offset: Any) -> list[Step] | None:
    """The operators, with their arguments after the first, that give `base.as_strided(size, stride, offset)`.

    None where there are none of these kinds. Sizes may be symbols, of which then the arguments are made.
    """
    form = (tuple(size), tuple(stride), offset - base.storage_offset())
    for steps in (_of_dimensions(base, *form), through_blocks(base, *form)):
        if steps is not None and _gives(steps, base, form):
            return steps
    return None


def _of_dimensions(base: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], offset: Any) -> list[Step] | None:
    """Where each dimension of the view is one of the tensor's."""
    if not all(isinstance(number, int) for number in (*base.shape, *base.stride(), *size, *stride, offset)):
        return None
    begins = _begins(base, offset)
    if begins is None:
        return None
    free = list(range(base.dim()))
    taken: list[int] = []
    steps: list[Step] = []
    for length, step in zip(size, stride, strict=True):
        dim = _dimension(base, free, begins, length, step)
        if dim is None:
            return None
        free.remove(dim)
        taken.append(dim)
        every = step // base.stride(dim)
        if (length, every) != (base.shape[dim], 1):
            steps.append((_aten.slice.Tensor, (dim, begins[dim], begins[dim] + (length - 1) * every + 1, every)))
    for dim in reversed(free):
        steps.append((_aten.select.int, (dim, begins[dim])))
    order = [sorted(taken).index(dim) for dim in taken]
    if order != sorted(order):
        steps.append((_aten.permute.default, (order,)))
    return steps


def _dimension(base: torch.Tensor, free: list[int], begins: list[int], length: int, step: int) -> int | None:
    """The dimension of which `length` elements, `step` apart in memory, are taken."""
    strides = base.stride()
    fits = [
        dim
        for dim in free
        if step % strides[dim] == 0 and begins[dim] + (length - 1) * (step // strides[dim]) < base.shape[dim]
    ]
    # Of several, as some have size 1, the one with this very stride, and then the one that is as long.
    return min(fits, key=lambda dim: (strides[dim] != step, base.shape[dim] != length), default=None)


def _begins(base: torch.Tensor, offset: Any) -> list[int] | None:
    """Where in each dimension an offset into the tensor's memory lies."""
    begins = [0] * base.dim()
    for dim in sorted(range(base.dim()), key=lambda dim: (base.stride(dim), -base.shape[dim]), reverse=True):
        if base.stride(dim) == 0:
            return None
        begins[dim] = min(offset // base.stride(dim), base.shape[dim] - 1)
        offset -= begins[dim] * base.stride(dim)
    return begins if offset == 0 else None


def _gives(steps: list[Step], base: torch.Tensor, form: tuple[Any, ...]) -> bool:
    # Of sizes that are symbols the tensor is fake.
    symbols = any(isinstance(number, torch.SymInt) for number in (*base.shape, *base.stride()))
    device = None if symbols else torch.device("meta")
    view = base.new_empty_strided(base.shape, base.stride(), device=device)
    try:
        for op, args in steps:
            view = op(view, *args)
    except RuntimeError:
        return False
    ours = (*view.shape, *view.stride(), view.storage_offset())
    theirs = (*form[0], *form[1], form[2])
    return len(ours) == len(theirs) and all(statically_known_true(a == b) for a, b in zip(ours, theirs, strict=True))
