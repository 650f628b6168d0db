"""What a recording is made of: calls of ATen operators whose tensors are references into buffers."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass
from typing import Any

import torch

from airgraph.program.operators import written_arguments
from airgraph.program.order import WorkOrder
from airgraph.program.trees import leaves_of
from airgraph.torch_internals.storages import StorageWeakRef

__all__ = ["Buffer", "BufferKind", "Call", "Recording", "TensorRef"]


class BufferKind(enum.Enum):
    EXTERNAL = "external"  # existed before the capture: used where it lies
    MADE = "made"  # made by a recorded call
    INPUT = "input"  # filled from a user input before each replay


@dataclass(slots=True)
class Buffer:
    """A storage that recorded calls touch. address: of an EXTERNAL one. source: weak, to see who still holds it."""

    kind: BufferKind
    nbytes: int
    address: int | None
    storage: StorageWeakRef


# Neither this nor `Call` is ever changed. They are not frozen, for making a frozen one takes seven times as long, and
# a capture makes thousands.
@dataclass(slots=True)
class TensorRef:
    """A tensor as a view of a buffer; shape, stride and offset in elements."""

    buffer: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    conj: bool
    neg: bool

    @property
    def form(self) -> dict[str, Any]:
        """The view without its buffer, by the names that the engine has for its parts."""
        return {
            "dtype": self.dtype,
            "sizes": self.shape,
            "strides": self.stride,
            "offset": self.offset,
            "conj": self.conj,
            "neg": self.neg,
        }

    @property
    def is_row_major(self) -> bool:
        """Whether its elements lie as in a new tensor; the stride of a single element does not count."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if size not in (0, 1) and stride != expected:
                return False
            expected *= size
        return True


@dataclass(slots=True)
class Call:
    """One operator call. fresh: for each result of the schema, whether it has slots in `outs`.

    redispatch: an argument carries a lazy conjugation or negation, which only the dispatcher resolves.
    source: the user's line.
    """

    op: torch._ops.OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outs: tuple[TensorRef, ...]
    fresh: tuple[bool, ...]
    redispatch: bool
    source: str

    def result(self) -> TensorRef | None:
        """What it makes or writes first."""
        outs = [self.kwargs.get(argument.name) for argument in self.op._schema.arguments if argument.is_out]
        candidates = (*self.outs, *outs, *self.args)
        return next((each for each in candidates if isinstance(each, TensorRef)), None)

    def touched(self) -> set[int]:
        """The buffers that this call reads or writes."""
        return {ref.buffer for ref in (*self.refs(), *self.outs)}

    def writes(self) -> list[TensorRef]:
        """The tensors that it writes: results, and arguments by its schema."""
        return [*leaves_of(TensorRef, written_arguments(self.op, self.args, self.kwargs)), *self.outs]

    def given(self) -> set[int]:
        """The buffers that its arguments lie in."""
        return {ref.buffer for ref in self.refs()}

    def refs(self) -> list[TensorRef]:
        """The tensors among its arguments."""
        return leaves_of(TensorRef, (self.args, *self.kwargs.values()))


@dataclass(frozen=True)
class Recording:
    """order: of the calls. streams: the tags of its streams; None: the default one.

    to_the_end: buffers whose memory no other gets, since a stream was recorded for them.
    """

    calls: tuple[Call, ...]
    buffers: tuple[Buffer, ...]
    order: WorkOrder
    streams: tuple[Any, ...] = (None,)
    to_the_end: frozenset[int] = frozenset()

    @functools.cached_property
    def touched(self) -> tuple[set[int], ...]:
        """Of each call, the buffers that it reads or writes."""
        return tuple(call.touched() for call in self.calls)
