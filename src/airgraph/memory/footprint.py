"""What captures take of a pool, before and after they are made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

__all__ = ["Footprint", "overlaid"]


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of one capture, or of a pool.

    arena: intermediates. inputs: the buffer of each copied input, in order. outputs: what the program returns.
    """

    arena_nbytes: int = 0
    inputs_nbytes: tuple[int, ...] = ()
    outputs_nbytes: int = 0

    @property
    def nbytes(self) -> int:
        return self.arena_nbytes + sum(self.inputs_nbytes) + self.outputs_nbytes


def overlaid(footprints: Iterable[Footprint]) -> Footprint:
    """What a pool takes that graphs with these footprints share: of everything the largest."""
    arena = outputs = 0
    inputs: tuple[int, ...] = ()
    for footprint in footprints:
        arena = max(arena, footprint.arena_nbytes)
        outputs = max(outputs, footprint.outputs_nbytes)
        inputs = tuple(max(pair) for pair in zip_longest(inputs, footprint.inputs_nbytes, fillvalue=0))
    return Footprint(arena, inputs, outputs)
