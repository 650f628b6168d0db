"""How each argument reaches a graph: in what form a copy lies in the graph's buffer, and what a launch checks of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from airgraph.options import Options
from airgraph.program.inputs import InputPlan, InputRole, span_nbytes
from airgraph.program.layouts import Sees
from airgraph.program.program import CaptureProgram
from airgraph.runtime.cpu.engine import engine

__all__ = ["BufferForm", "bind_inputs", "buffer_forms"]


@dataclass(frozen=True, slots=True)
class BufferForm:
    """The copy of an argument in a buffer of `nbytes`; shape, stride and offset in elements.

    strides: how closely those of later arguments must agree, a name of the engine's `Strides`. block_nbytes: what is
    copied as one block, from `block_begin` bytes before the first element on; 0: elements are copied one by one.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    nbytes: int
    strides: str
    block_begin: int
    block_nbytes: int

    def place(self, block: torch.Tensor) -> torch.Tensor:
        """The copy as a tensor at the start of a block of bytes."""
        itemsize = self.dtype.itemsize
        elements = block[: self.nbytes // itemsize * itemsize].view(self.dtype)
        return elements.as_strided(self.shape, self.stride, self.offset)


def buffer_forms(program: CaptureProgram, args: list[Any], options: Options) -> dict[int, BufferForm]:
    """For each argument that is copied in, by index.

    A copy has the argument's own strides, and where the graph counts from the beginning of its storage all of that. It
    is dense where nobody would notice; elements that lie on one another do so in the copy too.
    """
    return {
        plan.index: _form(args[plan.index], program.sees[plan.index], guarded=program.why_not_admitted is None)
        for plan in program.inputs
        if plan.role is InputRole.USER and _is_copied(args[plan.index], program.sees[plan.index], program, options)
    }


def _is_copied(arg: torch.Tensor, sees: Sees, program: CaptureProgram, options: Options) -> bool:
    if arg.device != program.device:
        return True
    # All of the memory that a small part lies in would be copied. A graph on CPU follows it at no cost instead.
    is_part = sees is Sees.STORAGE and arg.untyped_storage().nbytes() > span_nbytes(arg)
    return options.clone_input and not (is_part and arg.device.type == "cpu" and options.on_input_move == "recapture")


def bind_inputs(
    launch: Any,
    program: CaptureProgram,
    args: list[Any],
    buffers: Mapping[int, tuple[BufferForm, torch.Tensor]],
    options: Options,
) -> list[int]:
    """Tell a launch of the engine what it copies, what it must find where it is now, and what the graph writes.

    buffers: of the arguments that are copied in. Returns the indices of those that are placed. With
    `on_input_move="copy"` a user's tensor is kept, and others are copied into it.
    """
    placed = []
    for plan in program.inputs:
        if plan.role is InputRole.SCALAR:
            continue
        arg = args[plan.index]
        sees = program.sees[plan.index]
        in_storage = sees is Sees.STORAGE
        with_offset = sees >= Sees.OFFSET or plan.index in program.fixed_offsets
        if plan.index in buffers:
            form, buffer = buffers[plan.index]
            strides = getattr(engine().Strides, form.strides)
            launch.add_copied_input(
                plan.index, buffer, arg, strides, with_offset, in_storage, form.block_begin, form.block_nbytes
            )
            continue
        is_exact = sees >= Sees.STRIDES or program.why_not_admitted is not None
        strides = engine().Strides.exact if is_exact else engine().Strides.elements
        if keeps(plan, args, options):
            launch.add_kept_input(plan.index, arg, strides, with_offset, in_storage)
            continue
        if plan.parameter and options.frozen_parameter:
            continue
        # Of others nobody else compares forms at an address that is as it was, Dynamo's guards apart.
        is_formed = program.why_not_admitted is not None or plan.role is InputRole.USER or sees >= Sees.OFFSET
        launch.add_placed_input(plan.index, arg, is_formed, strides, with_offset, in_storage)
        placed.append(plan.index)
        if plan.role is InputRole.MUTATED:
            launch.add_written_input(plan.index, arg)
    return placed


def keeps(plan: InputPlan, args: list[Any], options: Options) -> bool:
    """Whether an argument that is not copied in is kept, so that later ones are copied into it.

    One that shares memory with another is not: what is copied into it would be in the other too.
    """
    if plan.role is not InputRole.USER or options.on_input_move != "copy":
        return False
    can_be_written = torch._debug_has_internal_overlap(args[plan.index]) == 0
    return can_be_written and engine().first_overlap(args, [plan.index]) is None


def _form(arg: torch.Tensor, sees: Sees, *, guarded: bool) -> BufferForm:
    """guarded: whether somebody else compares the strides that the program was traced for."""
    shape, stride, itemsize = tuple(arg.shape), arg.stride(), arg.itemsize
    if sees is Sees.STORAGE:
        nbytes = arg.untyped_storage().nbytes() // itemsize * itemsize
        offset = int(arg.storage_offset())
        return BufferForm(shape, stride, offset, arg.dtype, nbytes, "exact", offset * itemsize, nbytes)
    lazy = arg.is_conj() or arg.is_neg()
    apart = _elements_lie_apart(arg)
    if (sees >= Sees.STRIDES or not apart) and (apart or not lazy):
        # With its gaps: who is told of strides may read them.
        span = span_nbytes(arg)
        return BufferForm(shape, stride, 0, arg.dtype, span, "elements" if guarded and not sees else "exact", 0, span)
    # Not of the argument itself, which may be of a subclass.
    dense = torch.empty_like(torch.empty_strided(shape, stride, device="meta")).stride()
    return BufferForm(shape, dense, 0, arg.dtype, arg.nbytes, "order" if guarded else "exact", 0, arg.nbytes)


def _elements_lie_apart(tensor: torch.Tensor) -> bool:
    """Whether no two elements share memory, told from strides that nest; where they do not, some are taken to."""
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return False
            reach += (size - 1) * stride
    return True
