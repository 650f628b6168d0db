"""AOTAutograd: lowering a graph of Dynamo's, and what it says of the lowered one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = [
    "aot_autograd",
    "boxed",
    "forward_and_backward",
    "graph_being_compiled",
    "knows_lowered_graph",
    "lowered_metadata",
    "mutation_types",
    "output_types",
    "shape_env_of_trace",
]


def aot_autograd(**settings: Any) -> Callable[..., Any]:
    """A backend of Dynamo's that lowers and hands over, see `torch._dynamo.backends.common`."""
    from torch._dynamo.backends.common import aot_autograd as made

    return made(**settings)


def forward_and_backward(*args: Any, **kwargs: Any) -> Any:
    """Split a graph of training in two, as torch's own backends do.

    AOTAutograd's default refuses operators with side effects, such as events, beside a checkpoint.
    """
    from functorch.compile import min_cut_rematerialization_partition  # type: ignore[import-untyped]

    return min_cut_rematerialization_partition(*args, **kwargs)


def boxed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A callable that takes its arguments as one list, which it may empty."""
    from torch._functorch._aot_autograd.utils import make_boxed_func

    return make_boxed_func(function)


def lowered_metadata() -> Any:
    """What AOTAutograd has found out of the graph that it lowers. Call inside one of its compilers."""
    context: Any = torch._guards.TracingContext.get()
    return context.fw_metadata


def graph_being_compiled() -> str | None:
    """Which graph a compiler of AOTAutograd's is called for: "inference", "forward", "backward" or "joint"; None where
    no compiler is called."""
    from torch._functorch._aot_autograd import logging_utils

    names = logging_utils.graph_being_compiled
    return names[-1].rpartition("_")[2] if names else None


def knows_lowered_graph() -> bool:
    """Whether `lowered_metadata` is there: in a compiler of AOTAutograd's within a backend of torch.compile."""
    context: Any = torch._guards.TracingContext.try_get()
    return context is not None and context.fw_metadata is not None


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
