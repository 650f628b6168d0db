"""How each argument of a program reaches the graph."""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from airgraph.torch_internals.storages import storage_id

__all__ = ["InputPlan", "InputPolicy", "InputRole", "ScalarSpec", "span_nbytes", "with_copies"]


class InputRole(enum.Enum):
    """What an argument is to the program."""

    STATIC = "static"  # a parameter, a buffer, or marked static
    MUTATED = "mutated"  # written by the graph, such as a KV cache
    USER = "user"  # a tensor that differs from call to call
    SCALAR = "scalar"  # a Python number


class InputPolicy(enum.Enum):
    """How an argument reaches a capture."""

    COPY = "copy"  # copied into the graph's own memory before each replay
    IN_PLACE = "in_place"  # used where it lies
    KEEP = "keep"  # used where it lies at the capture; those of later calls are copied into it
    KEY = "key"  # a Python number: part of the graph's key


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


def with_copies(plans: Sequence[InputPlan], args: Sequence[Any], roles: Collection[InputRole]) -> list[Any]:
    """The arguments, those of these roles on a copy of their whole storage: they share memory with one another as the
    arguments do."""
    copies: dict[int, torch.Tensor] = {}
    substituted = list(args)
    for plan in plans:
        arg = args[plan.index]
        if plan.role not in roles or not isinstance(arg, torch.Tensor):
            continue
        storage = storage_id(arg)
        if storage not in copies:
            elements = arg.untyped_storage().nbytes() // arg.itemsize
            copies[storage] = arg.as_strided((elements,), (1,), 0).clone()
        whole = copies[storage].view(arg.dtype)
        substituted[plan.index] = whole.as_strided(arg.shape, arg.stride(), arg.storage_offset())
    return substituted
