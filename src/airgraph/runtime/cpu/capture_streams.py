"""The streams of a capture by hand: forked from and joined to that which it began on, by events."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

from airgraph.errors import CaptureError, StreamError
from airgraph.program.stream_marks import DEFAULT
from airgraph.runtime.recording.call_order import CallOrder

__all__ = ["CaptureStreams"]


class CaptureStreams:
    """Which stream a call of the capture is on.

    order: of its calls; None stands for the stream that the capture began on. A stream of `airgraph.cpu` belongs to the
    capture once it waits for an event that was recorded in it. Those of tags are there from the beginning.
    """

    def __init__(self, order: CallOrder, origin: Any) -> None:
        self._order = order
        self._origin = origin
        self._forked: dict[int, Any] = {}
        self._events: dict[int, Any] = {}
        self._tokens: dict[int, torch.Tensor] = {}

    def enter_current(self, current: Any, where: Callable[[], str]) -> None:
        """What is recorded next is on the stream that is current. Raises CaptureError if it is not of the capture."""
        key = self._key_or_tag(current)
        if isinstance(key, int) and key not in self._forked:
            raise CaptureError(
                f"work at {where()} is on a stream that is not part of the capture. Let the stream wait for an event "
                "that is recorded in the capture first."
            )
        self._order.current = key

    def record(self, event: Any, stream: Any, current: Any) -> None:
        """On a stream, or on the current one for None. Nothing on a stream that is not of the capture."""
        key = self._key_or_tag(current) if stream is None else self._key(stream)
        if not isinstance(key, int) or key in self._forked:
            self._events[id(event)] = event
            self._order.record(id(event), key)

    def wait(self, event: Any, stream: Any, current: Any) -> None:
        """Nothing for an event that was not recorded in the capture."""
        if id(event) in self._events:
            self._order.wait(id(event), self._joining(stream, current))

    def record_tag(self, tag: str, current: Any) -> None:
        self._order.record(("tag", tag), self._key_or_tag(current))

    def wait_tag(self, tag: str, current: Any, where: Callable[[], str]) -> None:
        """where: gives the source line of the wait. Raises StreamError for an event that is not recorded before it."""
        if not self._order.is_recorded(("tag", tag)):
            raise StreamError(
                f"event {tag!r} is waited for at {where()} and not recorded before it in this capture, so that the "
                "wait would never order anything. Record it first, in the same capture."
            )
        self._order.wait(("tag", tag), self._joining(None, current))

    def token(self, current: Any) -> torch.Tensor:
        """A tensor that stands for what the current stream has been given so far."""
        made = torch.empty(0)
        self._tokens[id(made)] = made
        self._order.record(("token", id(made)), self._key_or_tag(current))
        return made

    def wait_for(self, tensor: torch.Tensor, calls: Sequence[int], current: Any) -> None:
        """The current stream goes on when a token or a tensor is there. calls: that write the tensor."""
        if id(tensor) in self._tokens:
            self._order.wait(("token", id(tensor)), self._joining(None, current))
        elif calls:
            self._order.wait_for_calls(calls, self._joining(None, current))

    def check_joined(self) -> None:
        """Raises CaptureError for a stream whose work the stream of the capture does not wait for."""
        for key in self._forked:
            if not self._order.covers(key):
                raise CaptureError(
                    "unjoined stream: work of the capture is on a stream that the stream which it began on does not "
                    "wait for. Record an event there, and wait for it before the capture ends."
                )

    def _joining(self, stream: Any, current: Any) -> Hashable:
        """A stream, or the current one for None, which now belongs to the capture."""
        key = self._key_or_tag(current) if stream is None else self._key(stream)
        if isinstance(key, int):
            self._forked[key] = current if stream is None else stream
        return key

    def _key_or_tag(self, current: Any) -> Hashable:
        """current: what the innermost block names, a stream or the tag of one."""
        if isinstance(current, str):
            return None if current == DEFAULT else current
        return self._key(current)

    def _key(self, stream: Any) -> int | None:
        """None, or the number of a stream of `airgraph.cpu`."""
        return None if stream is self._origin else id(stream)
