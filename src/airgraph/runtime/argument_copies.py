"""Copies of a program's arguments that share memory with one another as the arguments do."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from airgraph.program.inputs import InputRole
from airgraph.program.program import CaptureProgram

__all__ = ["with_copies"]


def with_copies(program: CaptureProgram, args: list[Any], roles: Collection[InputRole]) -> list[Any]:
    """The arguments, those of these roles on a copy of their whole storage."""
    copies: dict[int, torch.Tensor] = {}
    substituted = list(args)
    for plan in program.inputs:
        arg = args[plan.index]
        if plan.role not in roles or not isinstance(arg, torch.Tensor):
            continue
        storage = arg.untyped_storage()
        if storage._cdata not in copies:
            elements = storage.nbytes() // arg.itemsize
            copies[storage._cdata] = arg.as_strided((elements,), (1,), 0).clone()
        whole = copies[storage._cdata].view(arg.dtype)
        substituted[plan.index] = whole.as_strided(arg.shape, arg.stride(), arg.storage_offset())
    return substituted
