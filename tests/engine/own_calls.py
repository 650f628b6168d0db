"""Runs one operator on a tape of the engine, by a kernel of our own or by ATen's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from airgraph.program import own_operators as own_operators
from airgraph.runtime.engine.loading import engine

__all__ = ["append", "by_engine", "further_off", "lying", "values"]


def append(
    tape: Any,
    name: str,
    *args: Any,
    out: Tensor | tuple[Tensor, ...],
    exact: bool = False,
    overload: str = "",
    **kwargs: Any,
) -> str:
    """One more call, which fills `out` with what the operator gives; returns the tier that serves it."""
    outs = [out] if isinstance(out, Tensor) else list(out)
    call = engine().RecordedCall(
        name=name,
        overload=overload,
        args=args,
        kwargs=kwargs,
        outs=outs,
        fresh=[True] * len(outs),
        needed=[True] * len(outs),
        out_overload=None,
        redispatch=False,
        packed=None,
        exact=exact,
    )
    return str(tape.append(call))


def by_engine(
    name: str,
    *args: Any,
    out: Tensor | tuple[Tensor, ...],
    exact: bool = False,
    overload: str = "",
    **kwargs: Any,
) -> str:
    """Fills `out` with what the operator gives; returns the tier that served it."""
    tape = engine().Tape()
    tier = append(tape, name, *args, out=out, exact=exact, overload=overload, **kwargs)
    tape.replay()
    return tier


def lying(value: Tensor, how: str) -> Tensor:
    """The same values in memory that lies otherwise. how: "dense", "offset" or "gaps" between the rows."""
    if how == "dense":
        return value.clone(memory_format=torch.contiguous_format)
    pad = 3 if how == "gaps" else 0
    rows = value.reshape(-1, value.shape[-1])
    memory = torch.full((rows.numel() + rows.shape[0] * pad + 5,), 7, dtype=value.dtype)
    placed = memory[5:].as_strided(rows.shape, (rows.shape[1] + pad, 1))
    placed.copy_(rows)
    strides = [rows.shape[1] + pad, 1]
    for size in reversed(value.shape[1:-1]):
        strides.insert(0, strides[0] * size)
    return placed.as_strided(value.shape, strides[-value.dim() :], placed.storage_offset())


def values(*shape: int, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    if dtype is torch.int8:
        return torch.randint(-128, 128, shape, dtype=dtype, generator=generator)
    return torch.randn(shape, generator=generator).to(dtype)


def further_off(ours: list[Tensor], theirs: list[Tensor], exact: list[Tensor]) -> float:
    """How much further ours are from the exact values, as the ratio of the root mean squares of both errors."""

    def error(found: list[Tensor]) -> float:
        parts = [((each.double() - right) ** 2).sum() for each, right in zip(found, exact, strict=True)]
        return float(torch.stack(parts).sum().sqrt())

    at_least = sum(float(right.abs().sum()) for right in exact) * 1e-12
    return error(ours) / max(error(theirs), at_least)
