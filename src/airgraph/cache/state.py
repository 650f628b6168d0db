"""Global settings of PyTorch that a trace depends on: default dtype and device, autocast, function modes, ..."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._device
import torch.utils._python_dispatch

__all__ = ["Settled", "State"]

_DEVICE_CONTEXT = "torch.utils._device.DeviceContext"


@dataclass(frozen=True, slots=True)
class State:
    """autocast: the dtype, or None if it is off. modes: full names of function and dispatch modes and transforms."""

    default_dtype: str
    default_device: str | None
    autocast: str | None
    deterministic: bool
    modes: tuple[str, ...]

    @classmethod
    def now(cls, device_type: str) -> State:
        device = torch.utils._device.CURRENT_DEVICE
        on = torch.is_autocast_enabled(device_type)
        return cls(
            str(torch.get_default_dtype()),
            None if device is None else str(device),
            str(torch.get_autocast_dtype(device_type)) if on else None,
            torch.are_deterministic_algorithms_enabled(),
            tuple(_name(mode) for mode in (*_function_modes(), *_dispatch_modes())),
        )

    @property
    def foreign_modes(self) -> list[str]:
        """Modes that may do anything, unlike that of a default device."""
        return [mode for mode in self.modes if mode != _DEVICE_CONTEXT]


class Settled:
    """Whether settings are as they were when it was last told that they are right; `unchanged` costs little."""

    def __init__(self) -> None:
        # Of each grad mode its own: with or without, a call gives the same.
        self._checks: dict[bool, Callable[[], bool]] = {}
        self._device: Any = None
        self._modes = 0

    def unchanged(self) -> bool:
        check = self._checks.get(torch.is_grad_enabled())
        return (
            check is not None
            and check()
            and torch.utils._device.CURRENT_DEVICE is self._device
            and torch._C._len_torch_function_stack() == self._modes
            and torch._C._len_torch_dispatch_stack() == 0
            and torch._C._functorch.peek_interpreter_stack() is None
        )

    def settle(self) -> None:
        """What is set now is right."""
        device, modes = torch.utils._device.CURRENT_DEVICE, torch._C._len_torch_function_stack()
        others = self._checks if (device, modes) == (self._device, self._modes) else {}
        self._device, self._modes = device, modes
        self._checks = {**others, torch.is_grad_enabled(): torch._C._dynamo.guards.GlobalStateGuard().check}


def _function_modes() -> list[Any]:
    return list(torch.overrides._get_current_function_mode_stack())


def _dispatch_modes() -> list[Any]:
    """With transforms of torch.func, under which a tensor is not what it seems."""
    modes: list[Any] = list(torch.utils._python_dispatch._get_current_dispatch_mode_stack())
    transform = torch._C._functorch.peek_interpreter_stack()
    return [*modes, *([] if transform is None else [transform])]


def _name(mode: Any) -> str:
    return f"{type(mode).__module__}.{type(mode).__qualname__}"
