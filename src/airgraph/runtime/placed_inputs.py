"""The arguments that a graph uses where they lie, as every launch checks them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch

from airgraph.options import Options
from airgraph.program.inputs import InputRole, span_nbytes
from airgraph.program.program import CaptureProgram

__all__ = ["PlacedInputs"]


@dataclass(frozen=True, slots=True)
class PlacedInputs:
    """addresses: by index, of the inputs whose address is checked at each call."""

    addresses: dict[int, int]

    @classmethod
    def bind(
        cls, launch: Any, program: CaptureProgram, args: list[Any], buffered: Collection[int], options: Options
    ) -> PlacedInputs:
        """Tell a launch of the engine which arguments it must find where they are now, and which the graph writes.

        buffered: the inputs that are copied in. With `on_input_move="copy"` a user's tensor is kept, and others are
        copied into it.
        """
        addresses = {}
        for plan in program.inputs:
            arg = args[plan.index]
            if program.why_not_admitted is not None and plan.role is not InputRole.SCALAR:
                # Nobody else compares strides, or forms at an address that is as it was.
                launch.add_formed_input(plan.index, arg)
            if plan.index in buffered:
                continue
            if plan.role is InputRole.USER:
                if options.on_input_move == "copy" and torch._debug_has_internal_overlap(arg) == 0:
                    launch.add_kept_input(plan.index, arg)
                    addresses[plan.index] = arg.data_ptr()
                    continue
                launch.add_formed_input(plan.index, arg)
            elif plan.role is InputRole.SCALAR or (plan.parameter and options.frozen_parameter):
                continue
            addresses[plan.index] = arg.data_ptr()
            launch.add_fixed_input(plan.index, addresses[plan.index])
            if plan.role is InputRole.MUTATED:
                launch.add_written_input(plan.index)
                if program.why_not_admitted is not None and arg.numel():
                    launch.keep_apart(addresses[plan.index], span_nbytes(arg))
        return cls(addresses)
