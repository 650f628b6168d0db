"""AOTAutograd: lowering a graph of Dynamo's, and what it says of the lowered one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["aot_autograd", "boxed", "lowered_metadata", "mutation_types", "output_types", "shape_env_of_trace"]


def aot_autograd(**settings: Any) -> Callable[..., Any]:
    """A backend of Dynamo's that lowers and hands over, see `torch._dynamo.backends.common`."""
    from torch._dynamo.backends.common import aot_autograd as made

    return made(**settings)


def boxed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A callable that takes its arguments as one list, which it may empty."""
    from torch._functorch._aot_autograd.utils import make_boxed_func

    return make_boxed_func(function)


def lowered_metadata() -> Any:
    """What AOTAutograd has found out of the graph that it lowers. Call inside one of its compilers."""
    context: Any = torch._guards.TracingContext.get()
    return context.fw_metadata


def shape_env_of_trace() -> Any:
    """Of the trace that is on its way."""
    context: Any = torch._guards.TracingContext.get()
    return context.fake_mode.shape_env


def output_types() -> Any:
    """The enum of how an output relates to the arguments."""
    from torch._functorch._aot_autograd.schemas import OutputType

    return OutputType


def mutation_types() -> Any:
    """The enum of whether and where an argument's mutation is made."""
    from torch._functorch._aot_autograd.schemas import MutationType

    return MutationType
