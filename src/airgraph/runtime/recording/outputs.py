"""What becomes of each output of a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Constant", "InputView", "Output", "Owned", "finish_output"]


@dataclass(frozen=True, slots=True)
class Owned:
    """Output `position` among those whose memory the graph writes."""

    position: int


@dataclass(frozen=True, slots=True)
class InputView:
    """A view of argument `index`; delta: of the storage offset, in elements. None: the argument itself."""

    index: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    delta: int | None


@dataclass(frozen=True, slots=True)
class Constant:
    """What is the same at every call: a number, None, or a tensor that the graph did not make."""

    value: Any


Output = Owned | InputView | Constant


def finish_output(out: Output, made: Sequence[torch.Tensor], args: Sequence[Any]) -> Any:
    """An output of a call from what a replay made and from the call's arguments."""
    if isinstance(out, Owned):
        return made[out.position]
    if isinstance(out, Constant):
        return out.value
    if out.delta is None:
        return args[out.index]
    return args[out.index].as_strided(out.shape, out.stride, args[out.index].storage_offset() + out.delta)
