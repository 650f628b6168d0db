"""How each argument reaches a capture: decided once, before anything is recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from airgraph.options import Options
from airgraph.program.inputs import InputPlan, InputPolicy, InputRole, span_nbytes
from airgraph.program.layouts import Sees
from airgraph.program.program import CaptureProgram
from airgraph.runtime.engine.loading import engine
from airgraph.torch_internals.dispatcher import overlaps_itself

__all__ = ["BufferForm", "CaptureInput", "StridesAgree", "bind_inputs", "buffer_forms", "decide_inputs"]


class StridesAgree(Enum):
    """How closely the strides of a later argument must agree. The values are names of the engine's `Strides`."""

    EXACTLY = "exact"
    WHERE_SIZES_EXCEED_ONE = "elements"
    IN_ORDER = "order"  # dimensions lie in the same order, with gaps or without


@dataclass(frozen=True, slots=True)
class BufferForm:
    """The copy of an argument in a buffer of `nbytes`; shape, stride and offset in elements.

    strides: how closely those of later arguments must agree. block_nbytes: what is copied as one block, from
    `block_begin` bytes before the first element on; 0: elements are copied one by one.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    nbytes: int
    strides: StridesAgree
    block_begin: int
    block_nbytes: int

    def place(self, block: torch.Tensor) -> torch.Tensor:
        """The copy as a tensor at the start of a block of bytes."""
        itemsize = self.dtype.itemsize
        elements = block[: self.nbytes // itemsize * itemsize].view(self.dtype)
        return elements.as_strided(self.shape, self.stride, self.offset)


@dataclass(frozen=True, slots=True)
class CaptureInput:
    """An argument of a capture, how it reaches the graph, and what each later call is asked of it.

    form: of the copy, where the policy is COPY. strides: how closely those of later arguments must agree. with_offset,
    with_storage: whether the graph sees where the storage begins, or all of it. is_watched: whether a later one may lie
    elsewhere. is_formed: whether its form is looked at where its address is as it was.
    """

    plan: InputPlan
    arg: Any
    policy: InputPolicy
    form: BufferForm | None = None
    strides: StridesAgree = StridesAgree.EXACTLY
    with_offset: bool = False
    with_storage: bool = False
    is_watched: bool = True
    is_formed: bool = True

    @property
    def index(self) -> int:
        return self.plan.index


def decide_inputs(
    program: CaptureProgram, args: Sequence[Any], options: Options, *, follows_moves: bool
) -> list[CaptureInput]:
    """The policy of every argument of a capture, for these arguments and options.

    follows_moves: see the device's `Capabilities`.
    """
    # Where a graph follows an argument at no cost, all of the memory that a small part lies in is not copied.
    copies_whole_of_part = not follows_moves or options.on_input_move != "recapture"
    return [_decide(program, plan, args, options, copies_whole_of_part) for plan in program.inputs]


def buffer_forms(inputs: Sequence[CaptureInput]) -> dict[int, BufferForm]:
    """The forms of those that are copied in, by index."""
    return {each.index: each.form for each in inputs if each.form is not None}


def bind_inputs(launch: Any, inputs: Sequence[CaptureInput], buffers: Mapping[int, torch.Tensor]) -> None:
    """Tell a launch of the engine what it copies, what it must find where it is now, and what the graph writes.

    buffers: what those that are copied in are copied to, by index.
    """
    for each in inputs:
        if each.policy is InputPolicy.KEY or not each.is_watched:
            continue
        seen = {
            "index": each.index,
            "strides": getattr(engine().Strides, each.strides.value),
            "with_offset": each.with_offset,
            "with_storage": each.with_storage,
        }
        if each.form is not None:
            block = {"block_begin": each.form.block_begin, "block_nbytes": each.form.block_nbytes}
            launch.add_copied_input(buffer=buffers[each.index], like=each.arg, **seen, **block)
        elif each.policy is InputPolicy.KEEP:
            launch.add_kept_input(theirs=each.arg, **seen)
        else:
            launch.add_placed_input(like=each.arg, is_formed=each.is_formed, **seen)
            if each.plan.role is InputRole.MUTATED:
                launch.add_written_input(each.index, each.arg)


def _decide(
    program: CaptureProgram, plan: InputPlan, args: Sequence[Any], options: Options, copies_whole_of_part: bool
) -> CaptureInput:
    arg = args[plan.index]
    if plan.role is InputRole.SCALAR:
        return CaptureInput(plan, arg, InputPolicy.KEY)
    sees, guarded = program.sees[plan.index], program.why_not_admitted is None
    with_offset = sees >= Sees.OFFSET or plan.index in program.fixed_offsets
    with_storage = sees is Sees.STORAGE
    if plan.role is InputRole.USER and _is_copied(arg, sees, program, options, copies_whole_of_part):
        form = _form(arg, sees, guarded=guarded)
        return CaptureInput(plan, arg, InputPolicy.COPY, form, form.strides, with_offset, with_storage)
    keeps = plan.role is InputRole.USER and options.on_input_move == "copy" and _can_be_kept(plan, args)
    return CaptureInput(
        plan,
        arg,
        InputPolicy.KEEP if keeps else InputPolicy.IN_PLACE,
        strides=_elements_unless(sees >= Sees.STRIDES or not guarded),
        with_offset=with_offset,
        with_storage=with_storage,
        is_watched=not (plan.parameter and options.frozen_parameter),
        # Of others nobody else compares forms at an address that is as it was, Dynamo's guards apart.
        is_formed=not guarded or plan.role is InputRole.USER or sees >= Sees.OFFSET,
    )


def _is_copied(
    arg: torch.Tensor, sees: Sees, program: CaptureProgram, options: Options, copies_whole_of_part: bool
) -> bool:
    if arg.device != program.device:
        return True
    is_part = sees is Sees.STORAGE and arg.untyped_storage().nbytes() > span_nbytes(arg)
    return options.clone_input and (copies_whole_of_part or not is_part)


def _can_be_kept(plan: InputPlan, args: Sequence[Any]) -> bool:
    """Not where it shares memory with another: what is copied into it would be in the other too."""
    return not overlaps_itself(args[plan.index]) and engine().first_overlap(list(args), [plan.index]) is None


def _form(arg: torch.Tensor, sees: Sees, *, guarded: bool) -> BufferForm:
    """A copy has the argument's own strides, and where the graph counts from the beginning of its storage all of that.
    It is dense where nobody would notice; elements that lie on one another do so in the copy too.

    guarded: whether somebody else compares the strides that the program was traced for."""
    shape, stride, itemsize = tuple(arg.shape), arg.stride(), arg.itemsize
    if sees is Sees.STORAGE:
        nbytes = arg.untyped_storage().nbytes() // itemsize * itemsize
        offset = int(arg.storage_offset())
        return BufferForm(shape, stride, offset, arg.dtype, nbytes, StridesAgree.EXACTLY, offset * itemsize, nbytes)
    lazy = arg.is_conj() or arg.is_neg()
    apart = _elements_lie_apart(arg)
    if (sees >= Sees.STRIDES or not apart) and (apart or not lazy):
        # With its gaps: who is told of strides may read them.
        span = span_nbytes(arg)
        strides = _elements_unless(bool(sees) or not guarded)
        return BufferForm(shape, stride, 0, arg.dtype, span, strides, 0, span)
    # Not of the argument itself, which may be of a subclass; not on the device meta, whose kernel imports sympy. What
    # nobody writes to takes no memory.
    like = torch.empty_strided(shape, stride, dtype=torch.uint8, device="cpu")
    dense = torch.empty_like(like).stride()
    strides = StridesAgree.IN_ORDER if guarded else StridesAgree.EXACTLY
    return BufferForm(shape, dense, 0, arg.dtype, arg.nbytes, strides, 0, arg.nbytes)


def _elements_unless(exactly: bool) -> StridesAgree:
    return StridesAgree.EXACTLY if exactly else StridesAgree.WHERE_SIZES_EXCEED_ONE


def _elements_lie_apart(tensor: torch.Tensor) -> bool:
    """Whether no two elements share memory, told from strides that nest; where they do not, some are taken to."""
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return False
            reach += (size - 1) * stride
    return True
