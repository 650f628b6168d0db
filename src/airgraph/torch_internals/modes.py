"""What is around a call on this thread: function and dispatch modes, transforms, traces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = [
    "TorchDispatchMode",
    "active_modes",
    "function_modes",
    "is_transformed",
    "mode_counts",
    "take_off_modes",
    "torch_function_enabled",
    "without_modes",
    "without_torch_function",
]


def mode_counts() -> tuple[int, int]:
    """How many dispatch modes and function modes there are."""
    return torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()


def function_modes() -> list[Any]:
    """From the outermost to the innermost."""
    return list(torch.overrides._get_current_function_mode_stack())


def active_modes() -> list[Any]:
    """Function modes, dispatch modes, and what stands for a transform of torch.func or for torch.jit.trace."""
    others = (torch._C._functorch.peek_interpreter_stack(), torch._C._get_tracing_state())
    return [
        *function_modes(),
        *_python_dispatch._get_current_dispatch_mode_stack(),
        *(each for each in others if each is not None),
    ]


def take_off_modes(dispatch: int, function: int) -> None:
    """All but the first so many of each kind."""
    while torch._C._len_torch_dispatch_stack() > dispatch:
        _python_dispatch._pop_mode()
    while torch._C._len_torch_function_stack() > function:
        torch._C._pop_torch_function_stack()


def without_modes() -> AbstractContextManager[Any]:
    """A block in which neither dispatch modes nor function modes see what is called."""
    return _without_modes() if any(mode_counts()) else nullcontext()


@contextmanager
def _without_modes() -> Iterator[None]:
    with _python_dispatch._disable_current_modes(), torch._C.DisableTorchFunction():
        yield


def without_torch_function() -> AbstractContextManager[Any]:
    """A block in which neither function modes nor tensor subclasses see what is called."""
    return torch._C.DisableTorchFunction()


def is_transformed() -> bool:
    """Whether a transform of torch.func is on its way."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def torch_function_enabled() -> bool:
    return torch._C._is_torch_function_enabled()
