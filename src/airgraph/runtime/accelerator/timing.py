"""When the calls of one walk over a program run on a device: events around each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from airgraph.program.operators import is_view_operator
from airgraph.program.stream_marks import DEFAULT, event_of
from airgraph.program.streams import stream_of
from airgraph.program.trees import leaves_of
from airgraph.runtime.recording.call_order import CallOrder
from airgraph.runtime.timeline import Span

__all__ = ["Timing"]

_NS_PER_MS = 1_000_000


@dataclass(slots=True)
class _Call:
    operator: str
    source: str
    begin: Any
    end: Any = None
    nbytes: int = 0


class Timing:
    """The calls of a walk, in its order. Views do nothing, and are none."""

    def __init__(self, new_event: Callable[[], Any]) -> None:
        """new_event: makes one that notes its time."""
        self._new_event = new_event
        self._calls: list[_Call] = []
        self._order = CallOrder()

    def call(
        self, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], tag: str | None, source: str
    ) -> Any:
        """Call an operator, on the current stream, which stands for the tag."""
        if is_view_operator(op):
            return op(*args, **kwargs)
        made = _Call(op.name(), source, self._event())
        result = op(*args, **kwargs)
        made.end = self._event()
        made.nbytes = sum(each.nbytes for each in leaves_of(torch.Tensor, result))
        self._order.current = tag
        self._order.call()
        self._calls.append(made)
        return result

    def mark(self, node: Node) -> None:
        """A record of an event, or a wait for one."""
        event = event_of(node)
        if event is None:
            return
        tag, waits = event
        (self._order.wait if waits else self._order.record)(tag, stream_of(node))

    def spans(self) -> tuple[Span, ...]:
        """When each call ran, once the device is done with all of them."""
        if not self._calls:
            return ()
        order, tags = self._order.finish(), self._order.tags()
        first = self._calls[0].begin
        moments = [[first.elapsed_time(event) * _NS_PER_MS for event in (c.begin, c.end)] for c in self._calls]
        start = min(begin for begin, _ in moments)
        return tuple(
            Span(
                call.operator,
                DEFAULT if tags[stream] is None else str(tags[stream]),
                stream,
                round(begin - start),
                round(end - start),
                call.source,
                call.nbytes,
                order.waits_elsewhere(step),
            )
            for step, (call, stream, (begin, end)) in enumerate(zip(self._calls, order.stream_of, moments, strict=True))
        )

    def _event(self) -> Any:
        event = self._new_event()
        event.record()
        return event
