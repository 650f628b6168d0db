"""Which call of a recording waits for which: streams and events, as a capture meets them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from airgraph.program.order import WorkOrder

__all__ = ["CallOrder"]


class CallOrder:
    """Streams of a recording in the making. What is recorded belongs to the stream of `current`; None: the first one.

    A stream's calls follow one another. `record` marks what a stream has done by then, `wait` lets what the stream is
    given later begin after that. Events and streams are whatever identifies them.
    """

    def __init__(self) -> None:
        self.current: Hashable = None
        self._streams: dict[Hashable, int] = {None: 0}
        self._stream_of: list[int] = []
        self._waits: dict[int, tuple[int, ...]] = {}
        # Of each stream its last call, and what its next one waits for.
        self._last: dict[int, int] = {}
        self._pending: dict[int, set[int]] = {}
        self._recorded: dict[Hashable, frozenset[int]] = {}
        self._last_in_line: int | None = None

    def __len__(self) -> int:
        return len(self._stream_of)

    def call(self, *, in_line: bool = False) -> None:
        """The next call. in_line: it comes after all such calls before it, on whatever stream."""
        step, stream = len(self._stream_of), self._number(self.current)
        waits = self._pending.pop(stream, set())
        if in_line:
            if self._last_in_line is not None:
                waits.add(self._last_in_line)
            self._last_in_line = step
        if waits:
            self._waits[step] = tuple(sorted(waits))
        self._stream_of.append(stream)
        self._last[stream] = step

    def record(self, event: Hashable, stream: Hashable) -> None:
        self._recorded[event] = self._done(self._number(stream))

    def is_recorded(self, event: Hashable) -> bool:
        return event in self._recorded

    def wait(self, event: Hashable, stream: Hashable) -> None:
        """Nothing for an event that was not recorded."""
        self._pending.setdefault(self._number(stream), set()).update(self._recorded.get(event, ()))

    def wait_for_calls(self, calls: Iterable[int], stream: Hashable) -> None:
        self._pending.setdefault(self._number(stream), set()).update(calls)

    def covers(self, stream: Hashable) -> bool:
        """Whether what the first stream is given next begins after all work of this one."""
        order = WorkOrder(self._stream_of, self._waits, len(self._streams))
        end = order.append(0, sorted(self._pending.get(0, ())))
        last = order.last_of(self._number(stream)) if stream in self._streams else None
        return last is None or order.precedes(last, end)

    def finish(self) -> WorkOrder:
        """The order of all calls so far."""
        used = sorted(set(self._stream_of))
        number = {stream: position for position, stream in enumerate(used)}
        return WorkOrder([number[stream] for stream in self._stream_of], self._waits, max(len(used), 1))

    def tags(self) -> tuple[Hashable, ...]:
        """What identifies the streams of `finish`, in its order."""
        used = set(self._stream_of)
        return tuple(tag for tag, number in self._streams.items() if number in used)

    def _number(self, stream: Hashable) -> int:
        return self._streams.setdefault(stream, len(self._streams))

    def _done(self, stream: int) -> frozenset[int]:
        last = self._last.get(stream)
        return frozenset((*self._pending.get(stream, ()), *(() if last is None else (last,))))
