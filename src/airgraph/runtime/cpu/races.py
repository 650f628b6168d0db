"""Races between the streams of a recording, and the waits that end them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from airgraph.program.order import WorkOrder
from airgraph.runtime.cpu.tape import Buffer, Call, Recording, TensorRef
from airgraph.user_warning import warn_user

__all__ = ["without_races"]

_OUTSIDE = -1
# Of masks that show which bytes two tensors use; in more than that, those whose ranges meet are taken to share some.
_LARGEST_MASK = 1 << 26


class _Span(NamedTuple):
    """The bytes from and up to which a tensor lies, in a buffer or in all memory from outside."""

    place: int
    start: int
    end: int
    ref: TensorRef


def without_races(recording: Recording) -> Recording:
    """The same, where each call waits for all before it that read what it writes or write what it uses.

    Two calls race if they are on different streams, touch bytes of one buffer of which one writes, and no event orders
    them. One warning names the first pair.
    """
    given = recording.order
    if given.streams == 1:
        return recording
    order, found = WorkOrder(streams=given.streams), list[tuple[int, int]]()
    touched: list[tuple[list[_Span], list[_Span]]] = []
    readers, writers = _Steps(), _Steps()
    for step, (call, stream) in enumerate(zip(recording.calls, given.stream_of, strict=True)):
        order.append(stream, given.waits.get(step, ()))
        reads, writes = _accesses(call, recording.buffers)
        near = {*writers.unordered(reads, order), *writers.unordered(writes, order), *readers.unordered(writes, order)}
        # From the latest: what a wait for it orders needs no wait of its own.
        for other in sorted(near, reverse=True):
            if order.precedes(other, step):
                continue
            other_reads, other_writes = touched[other]
            if _meet(writes, [*other_reads, *other_writes]) or _meet(reads, other_writes):
                order.wait_too(other)
                found.append((other, step))
        touched.append((reads, writes))
        readers.add(step, stream, reads)
        writers.add(step, stream, writes)
    if not found:
        return recording
    first, second = (_described(recording, step) for step in found[0])
    others = f", and so for {len(found) - 1} more pairs" if len(found) > 1 else ""
    warn_user(
        f"capture by hand: {first} and {second} use the same memory, and nothing orders the two{others}. The "
        "second now waits for the first, so results are right. Record an event after the first and wait for it "
        "before the second."
    )
    return replace(recording, order=order)


class _Steps:
    """Which steps of each stream touched a place, in their order."""

    def __init__(self) -> None:
        self._of: dict[int, dict[int, list[int]]] = {}

    def add(self, step: int, stream: int, spans: Sequence[_Span]) -> None:
        for place in {span.place for span in spans}:
            self._of.setdefault(place, {}).setdefault(stream, []).append(step)

    def unordered(self, spans: Sequence[_Span], order: WorkOrder) -> Iterator[int]:
        """Those at the places of these spans that the last step of an order does not come after."""
        last = len(order) - 1
        for place in {span.place for span in spans}:
            for steps in self._of.get(place, {}).values():
                # Of one stream the earlier are ordered, too.
                yield from itertools.takewhile(lambda step: not order.precedes(step, last), reversed(steps))


def _accesses(call: Call, buffers: Sequence[Buffer]) -> tuple[list[_Span], list[_Span]]:
    """What a call reads, and what it writes."""
    return [_span(ref, buffers) for ref in call.refs()], [_span(ref, buffers) for ref in call.writes()]


def _span(ref: TensorRef, buffers: Sequence[Buffer]) -> _Span:
    buffer = buffers[ref.buffer]
    # Memory from outside is one, whichever storages lie in it.
    place, start = (ref.buffer, 0) if buffer.address is None else (_OUTSIDE, buffer.address)
    if 0 in ref.shape:
        return _Span(place, start, start, ref)
    reach = sum((size - 1) * stride for size, stride in zip(ref.shape, ref.stride, strict=True))
    begin = start + ref.offset * ref.dtype.itemsize
    return _Span(place, begin, begin + (reach + 1) * ref.dtype.itemsize, ref)


def _meet(spans: list[_Span], others: list[_Span]) -> bool:
    return any(_share_bytes(a, b) for a in spans for b in others)


def _share_bytes(a: _Span, b: _Span) -> bool:
    if a.place != b.place or a.end <= b.start or b.end <= a.start:
        return False
    start, end = min(a.start, b.start), max(a.end, b.end)
    if end - start > _LARGEST_MASK:
        return True
    used = torch.zeros(end - start, dtype=torch.bool)
    _bytes_in(used, a, start).fill_(True)
    return bool(_bytes_in(used, b, start).any())


def _bytes_in(mask: torch.Tensor, span: _Span, start: int) -> torch.Tensor:
    """Of a mask that begins at a byte, the part that stands for a tensor's."""
    size = span.ref.dtype.itemsize
    strides = [stride * size for stride in span.ref.stride]
    return mask.as_strided((*span.ref.shape, size), (*strides, 1), span.start - start)


def _described(recording: Recording, step: int) -> str:
    call = recording.calls[step]
    tag = recording.streams[recording.order.stream_of[step]]
    stream = (
        "the stream of the capture" if tag is None else f"stream {tag!r}" if isinstance(tag, str) else "another stream"
    )
    return f"{call.op} on {stream} ({call.source})"
