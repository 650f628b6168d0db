"""When the calls of one walk over a program run on a device: events around each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from airgraph.program.operators import is_view_operator
from airgraph.program.stream_marks import DEFAULT, event_of
from airgraph.program.streams import stream_of
from airgraph.program.trees import leaves_of
from airgraph.runtime.timeline import Span

__all__ = ["Timing"]

_NS_PER_MS = 1_000_000


@dataclass(slots=True)
class _Call:
    operator: str
    stream: str | None
    source: str
    begin: Any
    waits: tuple[int, ...]
    end: Any = None
    nbytes: int = 0


@dataclass(slots=True)
class _Stream:
    """last: the number of its latest call. waits: the calls that its next one waits for."""

    last: int | None = None
    waits: list[int] = field(default_factory=list)


class Timing:
    """The calls of a walk, in its order. Views do nothing, and are none."""

    def __init__(self, new_event: Callable[[], Any]) -> None:
        """new_event: makes one that notes its time."""
        self._new_event = new_event
        self._calls: list[_Call] = []
        self._streams: dict[str | None, _Stream] = {}
        self._recorded: dict[str, int | None] = {}

    def call(
        self, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], tag: str | None, source: str
    ) -> Any:
        """Call an operator, on the current stream, which stands for the tag."""
        if is_view_operator(op):
            return op(*args, **kwargs)
        stream = self._streams.setdefault(tag, _Stream())
        made = _Call(op.name(), tag, source, self._event(), tuple(stream.waits))
        result = op(*args, **kwargs)
        made.end = self._event()
        made.nbytes = sum(each.nbytes for each in leaves_of(torch.Tensor, result))
        stream.last, stream.waits = len(self._calls), []
        self._calls.append(made)
        return result

    def mark(self, node: Node) -> None:
        """A record of an event, or a wait for one."""
        event = event_of(node)
        if event is None:
            return
        tag, waits = event
        stream = self._streams.setdefault(stream_of(node), _Stream())
        if not waits:
            self._recorded[tag] = stream.last
            return
        awaited = self._recorded.get(tag)
        if awaited is not None and self._calls[awaited].stream != stream_of(node):
            stream.waits.append(awaited)

    def spans(self) -> tuple[Span, ...]:
        """When each call ran, once the device is done with all of them."""
        if not self._calls:
            return ()
        numbers = {tag: number for number, tag in enumerate(sorted(self._streams, key=lambda tag: tag or ""))}
        first = self._calls[0].begin
        moments = [[first.elapsed_time(event) * _NS_PER_MS for event in (c.begin, c.end)] for c in self._calls]
        start = min(begin for begin, _ in moments)
        return tuple(
            Span(
                call.operator,
                DEFAULT if call.stream is None else call.stream,
                numbers[call.stream],
                round(begin - start),
                round(end - start),
                call.source,
                call.nbytes,
                call.waits,
            )
            for call, (begin, end) in zip(self._calls, moments, strict=True)
        )

    def _event(self) -> Any:
        event = self._new_event()
        event.record()
        return event
