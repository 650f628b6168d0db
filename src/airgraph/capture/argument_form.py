"""In what two tensors differ that come as one argument, for a person to read."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch

__all__ = ["ArgumentForm"]


@dataclass(frozen=True, slots=True)
class ArgumentForm:
    """What a capture takes for granted of a tensor, but where it lies. Strides and offset in elements."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    strides: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, arg: Any) -> ArgumentForm | None:
        """None for a number, and for a tensor that has no such form."""
        if not isinstance(arg, torch.Tensor) or arg.layout is not torch.strided:
            return None
        return cls(tuple(arg.shape), arg.dtype, arg.device, arg.stride(), int(arg.storage_offset()))

    def change(self, arg: Any) -> str:
        """The first thing that is another, and what from and to."""
        now = ArgumentForm.of(arg)
        for each in fields(self) if now is not None else ():
            old, new = getattr(self, each.name), getattr(now, each.name)
            if old != new:
                return f"{each.name} {old} became {new}"
        return "its storage, or a lazy conjugation or negation, is another"
