"""Functions that Dynamo leaves alone, also where it has not been imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

__all__ = ["untraced"]

_Function = TypeVar("_Function", bound=Callable[..., object])


def untraced(function: _Function) -> _Function:
    """The same function, which runs as it is with all that it calls.

    For whatever is called when an object dies: that may fall amid the call of a compiled function, and Dynamo would
    trace it and do what it does twice.
    """
    frames = torch._C._dynamo.eval_frame
    skip = frames._FrameAction.SKIP
    frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))
    return function
