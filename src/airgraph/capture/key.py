"""What a capture depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from airgraph.program.inputs import ScalarSpec

__all__ = ["GraphKey"]


@dataclass(frozen=True, slots=True)
class GraphKey:
    """The numbers that a program was called with, in order, each with its type."""

    scalars: tuple[ScalarSpec, ...]

    @classmethod
    def of(cls, values: Sequence[Any]) -> GraphKey:
        return cls(tuple(ScalarSpec(type(value), value) for value in values))

    def __str__(self) -> str:
        return f"({', '.join(repr(scalar.value) for scalar in self.scalars)})"
