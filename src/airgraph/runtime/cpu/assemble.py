"""From a recording to a tape: plans the memory, places buffers, prepares every call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from airgraph.errors import InternalError, UnsupportedGraph
from airgraph.memory.plan import Lifetime, Plan, assign_offsets
from airgraph.memory.pool import Arena, ArenaPool
from airgraph.runtime.cpu.engine import engine
from airgraph.runtime.cpu.out_variants import out_overload
from airgraph.runtime.cpu.tape import BufferKind, Call, Recording, TensorRef

__all__ = ["Assembled", "assemble", "lifetimes"]


@dataclass(frozen=True, slots=True)
class Assembled:
    """tape: of the engine. data: each buffer as bytes where it lies. tiers: how many calls each tier serves."""

    tape: Any
    data: tuple[torch.Tensor, ...]
    arena: Arena
    plan: Plan
    lifetimes: tuple[Lifetime, ...]
    tiers: Mapping[str, int]

    def view(self, ref: TensorRef) -> torch.Tensor:
        return _view(self.data, ref)


def lifetimes(recording: Recording, placed: Mapping[int, int]) -> dict[int, Lifetime]:
    """For each buffer that the arena is to hold, from the first to the last call that touches it.

    placed: addresses of buffers that lie elsewhere. Inputs are live throughout, from step -1 where they are
    copied in, so that a replay without new inputs repeats the last call.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step, call in enumerate(recording.calls):
        for touched in call.touched():
            first.setdefault(touched, step)
            last[touched] = step
    found = {}
    for index, buffer in enumerate(recording.buffers):
        if index in placed or buffer.kind is BufferKind.EXTERNAL:
            continue
        if buffer.kind is BufferKind.INPUT:
            found[index] = Lifetime(-1, len(recording.calls), buffer.nbytes)
        elif index in first:
            found[index] = Lifetime(first[index], last[index], buffer.nbytes)
    return found


def assemble(recording: Recording, placed: Mapping[int, int], pool: ArenaPool) -> Assembled:
    """Plan the arena and prepare a tape.

    placed: for buffers that outlive the calls, such as outputs, the address of their memory (kept alive by the caller).
    Raises UnsupportedGraph naming operator and line if the engine cannot serve a call.
    """
    lives = lifetimes(recording, placed)
    plan = assign_offsets(tuple(lives.values()))
    arena = pool.open_arena(plan.peak)
    offsets = dict(zip(lives, plan.offsets, strict=True))
    native = engine()
    data = []
    for index, buffer in enumerate(recording.buffers):
        if index in placed:
            address = placed[index]
        elif index in offsets:
            address = arena.address + offsets[index]
        else:
            address = buffer.address or 0
        data.append(native.bytes_at(address, buffer.nbytes))
    tape = native.Tape()
    tiers: Counter[str] = Counter()
    touches = Counter(buffer for call in recording.calls for buffer in call.touched())
    for call in recording.calls:
        needed = [ref.buffer in placed or touches[ref.buffer] > 1 for ref in call.outs]
        tiers[_append(tape, call, data, needed)] += 1
    return Assembled(tape, tuple(data), arena, plan, tuple(lives.values()), dict(tiers))


def _append(tape: Any, call: Call, data: list[torch.Tensor], needed: list[bool]) -> str:
    """needed: for each slot of the call's results, whether anything reads it."""

    def resolve(value: Any) -> Any:
        if isinstance(value, TensorRef):
            return _view(data, value)
        if isinstance(value, (list, tuple)):
            return type(value)(resolve(item) for item in value)
        return value

    schema = call.op._schema
    use_out = call.outs and not call.redispatch and not schema.is_mutable and len(call.outs) == len(schema.returns)
    try:
        return tape.append(
            schema.name,
            schema.overload_name,
            resolve(call.args),
            {name: resolve(value) for name, value in call.kwargs.items()},
            [_view(data, ref) for ref in call.outs],
            list(call.fresh),
            needed,
            out_overload(call.op) if use_out else None,
            call.redispatch,
        )
    except RuntimeError as error:
        reason = f"the CPU engine cannot serve it ({str(error).splitlines()[0]})"
        raise UnsupportedGraph(reason, operator=call.op.name(), source=call.source) from error


def _view(data: Any, ref: TensorRef) -> torch.Tensor:
    if ref.buffer >= len(data):
        raise InternalError(f"buffer {ref.buffer} was not placed")
    return engine().view_at(
        data[ref.buffer], ref.dtype, list(ref.shape), list(ref.stride), ref.offset, ref.conj, ref.neg
    )
