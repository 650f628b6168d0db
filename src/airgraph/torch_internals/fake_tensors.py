"""Tensors without memory, by which shapes are propagated, and what their kernels raise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

__all__ = [
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "UnsupportedOperatorException",
    "fake_mode_of",
    "is_traceable_wrapper_subclass",
    "take_device_for",
]


def fake_mode_of(values: Iterable[Any]) -> FakeTensorMode | None:
    """The mode of the first fake tensor among values, which are all of one; None if none is fake."""
    return next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)


def take_device_for(device_type: str, target: torch.device) -> None:
    """What is traced to be made on, or moved to, devices of this type is on the target, as its kernels have it."""

    def names_device(op: Any) -> bool:
        return isinstance(op, torch._ops.OpOverload) and any(each.name == "device" for each in op._schema.arguments)

    def on_target(mode: FakeTensorMode, op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is None or torch.device(device).type != device_type:
            return NotImplemented
        with mode:
            return op(*args, **{**kwargs, "device": target})

    fake_impls.op_implementations_checks.insert(0, (names_device, on_target))
