"""Where the buffers of a capture lie and when."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Slot"]


@dataclass(frozen=True, slots=True)
class Slot:
    """A buffer in an arena, from step `first` to step `last`, both included. operator: what writes it first."""

    offset_bytes: int
    nbytes: int
    first: int
    last: int
    operator: str
