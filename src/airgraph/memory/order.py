"""In which order a graph's steps are done: a line on one stream, a partial order on several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

__all__ = ["WorkOrder"]

_NO_WAITS: Mapping[int, Sequence[int]] = MappingProxyType({})


class WorkOrder:
    """What certainly happens before what, however the device schedules its streams.

    Steps are numbered in program order. Those of one stream follow one another; a step may wait for earlier ones.
    Method: vector clocks (Fidge, Mattern, 1988).
    """

    def __init__(self, stream_of: Sequence[int], waits: Mapping[int, Sequence[int]] = _NO_WAITS) -> None:
        """stream_of: of each step, counted from 0. waits: for a step, the steps whose end it waits for.

        Raises ValueError where a step would wait for itself or a later one.
        """
        self.stream_of = tuple(stream_of)
        self.waits = {step: tuple(others) for step, others in waits.items() if others}
        self.streams = max(self.stream_of, default=0) + 1
        # Of each step, its place on its stream.
        self._places: list[int] = []
        # Of each step, how many steps of each stream are done when it begins.
        self._done: list[tuple[int, ...]] = []
        counts = [0] * self.streams
        last: list[int | None] = [None] * self.streams
        for step, stream in enumerate(self.stream_of):
            done = [0] * self.streams
            before = last[stream]
            for other in (*self.waits.get(step, ()), *(() if before is None else (before,))):
                if not 0 <= other < step:
                    raise ValueError(f"step {step} waits for step {other}, which is not before it")
                done = [max(a, b) for a, b in zip(done, self._after(other), strict=True)]
            self._done.append(tuple(done))
            self._places.append(counts[stream])
            counts[stream] += 1
            last[stream] = step

    @classmethod
    def line(cls, steps: int) -> WorkOrder:
        """So many steps, one after the other."""
        return cls((0,) * steps)

    def __len__(self) -> int:
        return len(self.stream_of)

    def precedes(self, step: int, other: int) -> bool:
        """Whether a step is certainly done before another begins."""
        return self._places[step] < self._done[other][self.stream_of[step]]

    def done_before(self, steps: frozenset[int]) -> tuple[int, ...]:
        """How many steps of each stream are certainly done before any of these begins."""
        return tuple(map(min, zip(*(self._done[step] for step in steps), strict=True)))

    def done_with(self, steps: frozenset[int]) -> tuple[int, ...]:
        """How many steps of each stream must be done for all of these to be: those up to the last of them."""
        found = [0] * self.streams
        for step in steps:
            stream = self.stream_of[step]
            found[stream] = max(found[stream], self._places[step] + 1)
        return tuple(found)

    def _after(self, step: int) -> tuple[int, ...]:
        done, stream = self._done[step], self.stream_of[step]
        return (*done[:stream], self._places[step] + 1, *done[stream + 1 :])
