"""How each argument of a program reaches the graph."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["InputPlan", "InputRole", "ScalarSpec", "TensorSpec", "span_nbytes"]


class InputRole(enum.Enum):
    """What an argument is to the graph."""

    STATIC = "static"  # a parameter, a buffer, or marked static: used in place
    MUTATED = "mutated"  # written by the graph, such as a KV cache: used in place
    USER = "user"  # a tensor that differs from call to call: copied in
    SCALAR = "scalar"  # a Python number: part of the graph's key


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape and strides in elements."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorSpec:
        return cls(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.device)


@dataclass(frozen=True, slots=True)
class ScalarSpec:
    """A number with its type, so that 1, 1.0 and True differ."""

    type: type
    value: Any


@dataclass(frozen=True, slots=True)
class InputPlan:
    """index: position among the program's arguments. source: the name its user would recognise.

    parameter: whether it is an nn.Parameter (`frozen_parameter` skips its address check).
    """

    index: int
    role: InputRole
    source: str
    parameter: bool = False


def span_nbytes(tensor: torch.Tensor) -> int:
    """Bytes from a tensor's first element to the end of its last, gaps included."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.itemsize
