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

    stream_of: of each step, counted from 0. waits: for a step, the steps whose end it waits for.
    """

    def __init__(
        self, stream_of: Sequence[int] = (), waits: Mapping[int, Sequence[int]] = _NO_WAITS, streams: int | None = None
    ) -> None:
        """streams: how many there are, where more steps are to be added. Raises ValueError as `append` does."""
        self.streams = max(stream_of, default=0) + 1 if streams is None else streams
        self.stream_of: list[int] = []
        self.waits: dict[int, tuple[int, ...]] = {}
        # Of each step, the one before it on its stream, and its place there.
        self._before: list[int | None] = []
        self._places: list[int] = []
        # Of each step, how many steps of each stream are done when it begins.
        self._done: list[tuple[int, ...]] = []
        # Of each stream, its last step.
        self._last: list[int | None] = [None] * self.streams
        for step, stream in enumerate(stream_of):
            self.append(stream, waits.get(step, ()))

    @classmethod
    def line(cls, steps: int) -> WorkOrder:
        """So many steps, one after the other."""
        return cls((0,) * steps)

    def __len__(self) -> int:
        return len(self.stream_of)

    def append(self, stream: int, waits: Sequence[int] = ()) -> int:
        """Add a step at the end and return its number. Raises ValueError where it would wait for no earlier one."""
        step, before = len(self.stream_of), self._last[stream]
        self.stream_of.append(stream)
        self._before.append(before)
        self._places.append(0 if before is None else self._places[before] + 1)
        self._done.append((0,) * self.streams if before is None else self._after(before))
        self._last[stream] = step
        for other in waits:
            self.wait_too(other)
        return step

    def wait_too(self, other: int) -> None:
        """The last step that was added waits for this one, too."""
        step = len(self.stream_of) - 1
        if not 0 <= other < step:
            raise ValueError(f"step {step} waits for step {other}, which is not before it")
        self.waits[step] = (*self.waits.get(step, ()), other)
        self._done[step] = tuple(map(max, self._done[step], self._after(other)))

    def last_of(self, stream: int) -> int | None:
        """The last step of a stream so far."""
        return self._last[stream]

    def before_on_its_stream(self, step: int) -> int | None:
        """The step that this one follows on its stream; None for the first."""
        return self._before[step]

    def waits_elsewhere(self, step: int) -> tuple[int, ...]:
        """The steps of other streams that this one was told to wait for."""
        return tuple(other for other in self.waits.get(step, ()) if self.stream_of[other] != self.stream_of[step])

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
        if self.streams == 1:
            return (self._places[step] + 1,)
        done, stream = self._done[step], self.stream_of[step]
        return (*done[:stream], self._places[step] + 1, *done[stream + 1 :])
