"""TorchAir's blocks, which say how the operators within them run."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from airgraph.errors import OptionError
from airgraph.program.stream_marks import stream, wait
from airgraph.program.unheeded import unheeded
from airgraph.torchair.refused import refused

__all__ = ["limit_core_num", "npu_stream_switch", "npu_wait_tensor", "super_kernel"]


def npu_stream_switch(
    stream_tag: str, stream_priority: int = 0, enable_inner_parallel: bool = True
) -> AbstractContextManager[None]:
    """A block whose operators run on the stream of this tag, see `airgraph.scope.stream`.

    enable_inner_parallel: allows operators of the block to run beside one another, of which airgraph makes no use:
    those of one tag run one after another. Raises StreamError for a tag that is no text or empty.
    """
    if not isinstance(enable_inner_parallel, bool):
        raise OptionError(f"enable_inner_parallel: expected True or False, got {enable_inner_parallel!r}.")
    return stream(stream_tag, stream_priority)


def npu_wait_tensor(self: torch.Tensor, dependency: torch.Tensor) -> torch.Tensor:
    """`self`, of which the current stream makes use only when `dependency` is made, see `airgraph.ops.wait`."""
    wait([dependency])
    return self


def limit_core_num(op_aicore_num: int, op_vectorcore_num: int) -> AbstractContextManager[None]:
    """A block whose operators take so many cores of an Ascend card at most: not heeded, and a warning says so.

    Results and streams are as without it. Raises OptionError for what is no number of cores.
    """
    for name, count in (("op_aicore_num", op_aicore_num), ("op_vectorcore_num", op_vectorcore_num)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise OptionError(f"limit_core_num: {name}: expected a number of cores, got {count!r}.")
    return unheeded("scope.limit_core_num")


def super_kernel(scope: str | None, options: str = "") -> AbstractContextManager[None]:
    """A block whose operators CANN would join into one kernel: not heeded, and a warning says so.

    Results and streams are as without it. Raises OptionError for a scope or options that are no text.
    """
    if not isinstance(scope, (str, type(None))) or not isinstance(options, str):
        raise OptionError(f"super_kernel: expected a name and options as texts, got {scope!r} and {options!r}.")
    return unheeded("scope.super_kernel")


deterministic = refused("scope.deterministic")
op_never_timeout = refused("scope.op_never_timeout")
data_dump = refused("scope.data_dump")
