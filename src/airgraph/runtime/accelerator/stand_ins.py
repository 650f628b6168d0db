"""What stands for the arguments of a graph when it is profiled."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from airgraph.program.inputs import InputPlan, InputPolicy, InputRole, span_nbytes, with_copies
from airgraph.runtime.recording.inputs import CaptureInput

__all__ = ["StandIn", "stand_ins_of", "taken"]


@dataclass(frozen=True, slots=True)
class StandIn:
    """An argument as it lay at the capture, in elements; value: of what is no tensor.

    place: the argument, where the graph uses it in place, for as long as somebody has it.
    """

    plan: InputPlan
    value: Any
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    offset: int = 0
    elements: int = 0
    dtype: torch.dtype | None = None
    place: weakref.ref[torch.Tensor] | None = None

    def take(self, device: torch.device) -> Any:
        """The argument itself where it is there and as it was, else zeros that lie as it did."""
        there = None if self.place is None else self.place()
        if self.dtype is None:
            return self.value
        if there is not None and self._describes(there):
            return there
        whole = torch.zeros(self.offset + self.elements, dtype=self.dtype, device=device)
        return whole.as_strided(self.shape, self.stride, self.offset)

    def _describes(self, tensor: torch.Tensor) -> bool:
        if (tuple(tensor.shape), tensor.stride(), tensor.dtype) != (self.shape, self.stride, self.dtype):
            return False
        return tensor.untyped_storage().nbytes() >= (int(tensor.storage_offset()) + self.elements) * tensor.itemsize


def stand_ins_of(inputs: Sequence[CaptureInput]) -> list[StandIn]:
    """They hold no tensor."""
    return [_stand_in(each.plan, each.arg, each.policy) for each in inputs]


def taken(stand_ins: Sequence[StandIn], device: torch.device) -> list[CaptureInput]:
    """Arguments for a run: what it writes is a copy. No input is copied into a buffer."""
    plans = [each.plan for each in stand_ins]
    args = with_copies(plans, [each.take(device) for each in stand_ins], (InputRole.MUTATED,))
    return [
        CaptureInput(plan, arg, InputPolicy.KEY if plan.role is InputRole.SCALAR else InputPolicy.IN_PLACE)
        for plan, arg in zip(plans, args, strict=True)
    ]


def _stand_in(plan: InputPlan, arg: Any, policy: InputPolicy) -> StandIn:
    if not isinstance(arg, torch.Tensor):
        return StandIn(plan, arg)
    place = weakref.ref(arg) if policy is InputPolicy.IN_PLACE else None
    elements = span_nbytes(arg) // arg.itemsize
    offset = int(arg.storage_offset())
    return StandIn(plan, None, tuple(arg.shape), arg.stride(), offset, elements, arg.dtype, place)
