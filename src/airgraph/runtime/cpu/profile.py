"""A profiled replay on the CPU, on memory of its own: no argument and no result of the caller changes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import torch

from airgraph.memory.footprint import Footprint
from airgraph.memory.pool import ArenaPool
from airgraph.program.stream_marks import DEFAULT
from airgraph.runtime.choices import Choice
from airgraph.runtime.cpu.assemble import ArenaPlan, assemble
from airgraph.runtime.cpu.tape import Buffer, BufferKind, Call, Recording
from airgraph.runtime.engine.loading import engine
from airgraph.runtime.timeline import Span
from airgraph.torch_internals.storages import storage_of

__all__ = ["profile"]

# The first ones fetch the memory and wake the threads.
_ROUNDS = 5


def profile(
    recording: Recording, arena: ArenaPlan, threads: int, *, exact: bool, products: Mapping[int, Choice]
) -> tuple[Span, ...]:
    """When each call of a recording runs, in their order.

    What the graph writes is a copy, user inputs are zeros, parameters are read where they lie. threads: that run it at
    most. exact: by eager's kernels only. products: as in the graph, but that weights are read as they lie. torch's
    generator is as before. Operators of the user's run as in any replay. Raises ReplayFailure of the engine where an
    operator fails.
    """
    native = engine()
    written = {ref.buffer for call in recording.calls for ref in call.writes()}
    placed: dict[int, torch.Tensor] = {}
    for index in set(range(len(recording.buffers))) - set(arena.buffers):
        buffer = recording.buffers[index]
        there = _there(buffer)
        if there is not None and index not in written:
            placed[index] = there
        else:
            placed[index] = torch.zeros(buffer.nbytes, dtype=torch.uint8)
            if there is not None:
                placed[index].copy_(there)
    lease = ArenaPool(native.ReplayLock()).take(Footprint(arena.plan.peak))
    assembled = assemble(recording, arena, placed, lease, threads - 1, exact=exact, products=products)
    with torch.random.fork_rng(devices=[]):
        moments = assembled.tape.timeline(_ROUNDS)
    start = min((begin for begin, _, _ in moments), default=0)
    order = recording.order
    return tuple(
        Span(
            call.op.name(),
            _name(recording.streams[order.stream_of[step]]),
            thread,
            begin - start,
            end - start,
            call.source,
            _result_nbytes(call),
            order.waits_elsewhere(step),
        )
        for step, (call, (begin, end, thread)) in enumerate(zip(recording.calls, moments, strict=True))
    )


def _there(buffer: Buffer) -> torch.Tensor | None:
    """The bytes of memory from outside, while it is as it was at capture."""
    storage = storage_of(buffer.storage) if buffer.kind is BufferKind.EXTERNAL else None
    if storage is None or storage.data_ptr() != buffer.address or storage.nbytes() < buffer.nbytes:
        return None
    whole: torch.Tensor = engine().whole(storage)
    return whole[: buffer.nbytes]


def _result_nbytes(call: Call) -> int:
    return sum(ref.dtype.itemsize * torch.Size(ref.shape).numel() for ref in call.writes())


def _name(stream: Hashable) -> str:
    return DEFAULT if stream is None else str(stream)
