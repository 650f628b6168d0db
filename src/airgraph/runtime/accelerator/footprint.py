"""What a capture will take of an accelerator's allocator, worked out before it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from airgraph.errors import UnsupportedGraph
from airgraph.memory.footprint import Footprint
from airgraph.memory.plan import Lifetime, assign_offsets
from airgraph.program.order import WorkOrder
from airgraph.program.program import CaptureProgram
from airgraph.program.streams import streams_of
from airgraph.program.trees import leaves_of
from airgraph.runtime.recording.inputs import BufferForm, CaptureInput, buffer_forms
from airgraph.runtime.recording.walk import Walk
from airgraph.torch_internals.fake_tensors import FakeTensorMode
from airgraph.torch_internals.storages import storage_id

__all__ = ["predict_footprint"]

# How PyTorch's caching allocators round: blocks to 512 bytes; small ones share segments of 2 MiB, larger ones segments
# of 20 MiB, and the largest have segments of their own.
_BLOCK = 512
_SMALL, _SMALL_SEGMENT = 1 << 20, 2 << 20
_LARGE, _LARGE_SEGMENT = 10 << 20, 20 << 20


def predict_footprint(program: CaptureProgram, inputs: Sequence[CaptureInput], *, with_results: bool) -> Footprint:
    """Bytes of the buffers of inputs, and of segments for what the operators return: 0 without with_results.

    Memory that operators take inside themselves is not known, so the true figure may be larger.
    """
    buffers = tuple(form.nbytes for form in buffer_forms(inputs).values())
    if not with_results:
        return Footprint(0, buffers)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        with mode, torch.no_grad():
            fakes = [
                replace(each, arg=mode.from_tensor(each.arg)) if isinstance(each.arg, torch.Tensor) else each
                for each in inputs
            ]
            walk = _Lifetimes(program, fakes)
            outputs = walk.run()
    except (UnsupportedGraph, RuntimeError, NotImplementedError):
        # The capture itself will say what is wrong, or will do without a fake kernel.
        return Footprint(0, buffers)
    # The allocator gives what a stream has freed to that stream only.
    of_streams = walk.lifetimes(outputs)
    return Footprint(sum(_segments_nbytes(lifetimes, walk.order) for lifetimes in of_streams), buffers)


class _Lifetimes(Walk):
    """Notes when each storage is made and used last, and on which stream."""

    def __init__(self, program: CaptureProgram, inputs: Sequence[CaptureInput]) -> None:
        super().__init__(program, inputs)
        self._given = {storage_id(each.arg) for each in inputs if isinstance(each.arg, torch.Tensor)}
        self.overlaps = len(streams_of(program.gm.graph)) > 1
        self._step = 0
        self._stream: dict[int, str | None] = {}
        # What two streams use, or the caller gets.
        self._lasting: set[int] = set()
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._made: dict[int, torch.Tensor] = {}

    def buffer_for(self, given: CaptureInput, form: BufferForm) -> torch.Tensor:
        return given.arg

    def made_here(self, value: torch.Tensor) -> bool:
        return storage_id(value) in self._made

    def call(self, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], where: str) -> Any:
        result = op(*args, **kwargs)
        self._step += 1
        for value in leaves_of(torch.Tensor, (args, *kwargs.values(), result)):
            key = storage_id(value)
            if key not in self._given:
                # Kept, so that no other storage takes its place in memory.
                self._made.setdefault(key, value)
                self._first.setdefault(key, self._step)
                self._last[key] = self._step
                if self._stream.setdefault(key, self.stream) != self.stream:
                    self._lasting.add(key)
        return result

    @property
    def order(self) -> WorkOrder:
        """Of the calls, and of what happens after the last."""
        return WorkOrder.line(self._step + 2)

    def lifetimes(self, outputs: list[Any]) -> list[list[Lifetime]]:
        """Of each stream."""
        self._lasting.update(storage_id(out) for out in outputs if isinstance(out, torch.Tensor))
        found: dict[str | None, list[Lifetime]] = {}
        for key, first in self._first.items():
            last = self._step + 1 if key in self._lasting else self._last[key]
            life = Lifetime.between(first, last, _nbytes(self._made[key]))
            found.setdefault(self._stream[key], []).append(life)
        return list(found.values())


def _segments_nbytes(lifetimes: list[Lifetime], order: WorkOrder) -> int:
    small = [life for life in lifetimes if life.nbytes <= _SMALL]
    large = [life for life in lifetimes if _SMALL < life.nbytes < _LARGE]
    huge = [life for life in lifetimes if life.nbytes >= _LARGE]
    return (
        _rounded(assign_offsets(small, order, alignment=_BLOCK).peak, _SMALL_SEGMENT)
        + _rounded(assign_offsets(large, order, alignment=_BLOCK).peak, _LARGE_SEGMENT)
        + assign_offsets(huge, order, alignment=_SMALL_SEGMENT).peak
    )


def _nbytes(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().nbytes())


def _rounded(nbytes: int, unit: int) -> int:
    return (nbytes + unit - 1) // unit * unit
