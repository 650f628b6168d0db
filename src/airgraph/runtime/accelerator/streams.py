"""The streams of a graph as a device has them, for one capture."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from torch.fx import Node

from airgraph.program.stream_marks import event_of
from airgraph.program.streams import stream_of
from airgraph.torch_internals.untraced import untraced

__all__ = ["CaptureStreams", "EventPool", "StreamsDevice"]


log = logging.getLogger(__name__)


class EventPool:
    """Events of one device. Graphs take them for as long as they live; those of graphs that are gone are used again."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._free: list[Any] = []

    def take(self) -> Any:
        try:
            return self._free.pop()
        except IndexError:
            return self._make()

    @untraced
    def give_back(self, events: list[Any]) -> None:
        """Take them back: no graph waits for them any more."""
        self._free.extend(events)


class _Held:
    """Streams and events of a graph. When it is gone its events go back to their pool."""

    def __init__(self, pool: EventPool, streams: list[Any]) -> None:
        self._pool = pool
        self.streams = streams
        self._events: list[Any] = []
        weakref.finalize(self, pool.give_back, self._events)

    def event(self) -> Any:
        event = self._pool.take()
        self._events.append(event)
        return event


class StreamsDevice(Protocol):
    """What streams are made of."""

    @property
    def module(self) -> Any:
        """torch.cuda, or what has its names."""
        ...

    def stream(self, tag: str, priority: int = 0) -> Any:
        """The stream of a tag on the current device; the same for each capture."""
        ...

    def event_pool(self) -> EventPool:
        """The events of the current device."""
        ...


class CaptureStreams:
    """Side streams that start at `fork` and have ended at `join`, and the events between.

    The default stream is the one that is current at `fork`. taken: the side streams of the device.
    held: what must live as long as the graph does.
    """

    @classmethod
    def of(cls, device: StreamsDevice, priorities: Mapping[str, int], most: int) -> CaptureStreams | None:
        """priorities: of all side streams, by tag. most: side streams of the device. Tags share them by turns, and
        where fewer are left, those. None: none are left, or wanted.

        Streams of one graph that become one stream of the device run one after another, as their program does.
        """
        taken: list[Any] = []
        for number, priority in enumerate(list(priorities.values())[:most]):
            try:
                # Named by number: graphs share what streams the device has.
                taken.append(device.stream(f"side {number}", priority))
            except RuntimeError as error:
                log.info("%d side streams are used, for no other is left: %s", number, error)
                break
        return cls(device, priorities, taken) if taken else None

    def __init__(self, device: StreamsDevice, priorities: Mapping[str, int], taken: list[Any]) -> None:
        self._module = device.module
        self._default = self._module.current_stream()
        self.taken = taken
        self._side = {tag: self.taken[number % len(self.taken)] for number, tag in enumerate(priorities)}
        self._recorded: dict[str, Any] = {}
        self.held = _Held(device.event_pool(), self.taken)

    def fork(self) -> None:
        start = self._event_on(self._default)
        for stream in self.taken:
            stream.wait_event(start)

    def join(self) -> None:
        for stream in self.taken:
            self._default.wait_event(self._event_on(stream))

    def around(self, tag: str | None) -> AbstractContextManager[Any]:
        """A block whose work is on the stream of this tag."""
        if tag is None:
            return nullcontext()
        block: AbstractContextManager[Any] = self._module.stream(self._side[tag])
        return block

    def mark(self, node: Node) -> None:
        """Do what a record of an event or a wait says. What `record_stream` keeps, the walk over the program does."""
        event = event_of(node)
        if event is None:
            return
        tag, waits = event
        stream_tag = stream_of(node)
        stream = self._default if stream_tag is None else self._side[stream_tag]
        if waits:
            stream.wait_event(self._recorded[tag])
        else:
            self._recorded[tag] = self._event_on(stream)

    def _event_on(self, stream: Any) -> Any:
        event = self.held.event()
        event.record(stream)
        return event
