"""What a capture will take of an accelerator's allocator, worked out before it is made."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from airgraph.errors import UnsupportedGraph
from airgraph.memory.footprint import Footprint
from airgraph.memory.plan import Lifetime, assign_offsets
from airgraph.program.inputs import InputPlan
from airgraph.program.program import CaptureProgram
from airgraph.runtime.interpretation import Interpretation

__all__ = ["predict_footprint"]

# How PyTorch's caching allocators round: blocks to 512 bytes; small ones share segments of 2 MiB, larger ones segments
# of 20 MiB, and the largest have segments of their own.
_BLOCK = 512
_SMALL, _SMALL_SEGMENT = 1 << 20, 2 << 20
_LARGE, _LARGE_SEGMENT = 10 << 20, 20 << 20


def predict_footprint(program: CaptureProgram, args: list[Any], inputs: tuple[int, ...]) -> Footprint:
    """Bytes of segments for what the operators return. inputs: bytes of the buffers of those that are copied in.

    Memory that operators take inside themselves is not known, so the true figure may be larger.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        with mode, torch.no_grad():
            fakes = [mode.from_tensor(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
            walk = _Walk(program, fakes)
            outputs = walk.run()
    except (UnsupportedGraph, RuntimeError, NotImplementedError):
        # The capture itself will say what is wrong, or will do without a fake kernel.
        return Footprint(0, inputs)
    return Footprint(_segments_nbytes(walk.lifetimes(outputs)), inputs)


class _Walk(Interpretation):
    """Notes when each storage is made and used last."""

    def __init__(self, program: CaptureProgram, args: list[Any]) -> None:
        super().__init__(program, args)
        self._given = {_storage(arg) for arg in args if isinstance(arg, torch.Tensor)}
        self._step = 0
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._made: dict[int, torch.Tensor] = {}

    def bring_in(self, plan: InputPlan, arg: Any) -> Any:
        return arg

    def made_here(self, value: torch.Tensor) -> bool:
        return _storage(value) in self._made

    def call(self, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], where: str) -> Any:
        result = op(*args, **kwargs)
        self._step += 1
        for value in tree_leaves((args, kwargs, result)):
            if isinstance(value, torch.Tensor) and _storage(value) not in self._given:
                key = _storage(value)
                # Kept, so that no other storage takes its place in memory.
                self._made.setdefault(key, value)
                self._first.setdefault(key, self._step)
                self._last[key] = self._step
        return result

    def lifetimes(self, outputs: list[Any]) -> list[Lifetime]:
        for out in outputs:
            if isinstance(out, torch.Tensor):
                self._last[_storage(out)] = self._step + 1
        return [Lifetime(first, self._last[key], _nbytes(self._made[key])) for key, first in self._first.items()]


def _segments_nbytes(lifetimes: list[Lifetime]) -> int:
    small = [life for life in lifetimes if life.nbytes <= _SMALL]
    large = [life for life in lifetimes if _SMALL < life.nbytes < _LARGE]
    huge = [life for life in lifetimes if life.nbytes >= _LARGE]
    return (
        _rounded(assign_offsets(small, alignment=_BLOCK).peak, _SMALL_SEGMENT)
        + _rounded(assign_offsets(large, alignment=_BLOCK).peak, _LARGE_SEGMENT)
        + assign_offsets(huge, alignment=_SMALL_SEGMENT).peak
    )


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _nbytes(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().nbytes())


def _rounded(nbytes: int, unit: int) -> int:
    return (nbytes + unit - 1) // unit * unit
