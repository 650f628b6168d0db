"""What a profiled replay tells: when each call ran, and where."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Span"]


@dataclass(frozen=True, slots=True)
class Span:
    """One call. begin_ns, end_ns: since the first call began. thread: 0 is the one that replays.

    stream: its tag. source: the user's line. nbytes: of its results. waits: the calls on other streams that it waits
    for, by their place among the spans.
    """

    operator: str
    stream: str
    thread: int
    begin_ns: int
    end_ns: int
    source: str
    nbytes: int
    waits: tuple[int, ...]
