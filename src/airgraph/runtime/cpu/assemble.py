"""From a recording to a tape: plans the memory, places buffers, prepares every call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from airgraph.errors import InternalError, UnsupportedGraph
from airgraph.memory.plan import Lifetime, Plan, assign_offsets
from airgraph.memory.pool import Lease
from airgraph.runtime.cpu.engine import engine
from airgraph.runtime.cpu.out_variants import functional_of, is_elementwise, out_overload
from airgraph.runtime.cpu.tape import BufferKind, Call, Recording, TensorRef

__all__ = ["ArenaPlan", "Assembled", "assemble", "plan_arena"]


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """Which buffers of a recording the arena holds, when and where. lifetimes and plan: in the order of `buffers`.

    edges: lifetimes of input buffers, which are filled before the first step, and of outputs, which outlive the last.
    """

    buffers: tuple[int, ...]
    lifetimes: tuple[Lifetime, ...]
    plan: Plan
    edges: tuple[Lifetime, ...]


@dataclass(frozen=True, slots=True)
class Assembled:
    """tape: of the engine. data: each buffer as bytes where it lies. tiers: which serves each call."""

    tape: Any
    data: tuple[torch.Tensor, ...]
    lease: Lease
    arena: ArenaPlan
    tiers: tuple[str, ...]

    def view(self, ref: TensorRef) -> torch.Tensor:
        return _view(self.data, ref)


def plan_arena(recording: Recording, elsewhere: Collection[int]) -> ArenaPlan:
    """Offsets of the intermediates, each live from the first to the last call that touches it.

    elsewhere: buffers that do not lie in the arena, such as inputs and outputs.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step, call in enumerate(recording.calls):
        for touched in call.touched():
            first.setdefault(touched, step)
            last[touched] = step
    buffers = tuple(
        index
        for index, buffer in enumerate(recording.buffers)
        if index in first and index not in elsewhere and buffer.kind is not BufferKind.EXTERNAL
    )
    lifetimes = tuple(Lifetime(first[i], last[i], recording.buffers[i].nbytes) for i in buffers)
    end = len(recording.calls)
    edges = tuple(
        Lifetime(-1, last.get(i, -1), recording.buffers[i].nbytes)
        if recording.buffers[i].kind is BufferKind.INPUT
        else Lifetime(first.get(i, end), end, recording.buffers[i].nbytes)
        for i in elsewhere
    )
    return ArenaPlan(buffers, lifetimes, assign_offsets(lifetimes), edges)


def assemble(recording: Recording, arena: ArenaPlan, placed: Mapping[int, torch.Tensor], lease: Lease) -> Assembled:
    """Prepare a tape.

    placed: the buffers that do not lie in the arena, as bytes. lease: holds a region for the arena.
    Raises UnsupportedGraph naming operator and line if the engine cannot serve a call.
    """
    if lease.region is None:
        raise InternalError("a CPU graph without a region")
    native = engine()
    offsets = dict(zip(arena.buffers, arena.plan.offsets, strict=True))
    data = []
    for index, buffer in enumerate(recording.buffers):
        if index in placed:
            data.append(placed[index])
            continue
        address = lease.region.address + offsets[index] if index in offsets else buffer.address or 0
        data.append(native.bytes_at(address, buffer.nbytes))
    tape = native.Tape()
    tiers = []
    touches = Counter(buffer for call in recording.calls for buffer in call.touched())
    for call in recording.calls:
        served = _as_functional(call)
        # A result that is written into an argument is needed whoever reads it.
        needed = [served is not call or ref.buffer in placed or touches[ref.buffer] > 1 for ref in served.outs]
        tiers.append(_append(tape, served, data, needed))
    return Assembled(tape, tuple(data), lease, arena, tuple(tiers))


def _as_functional(call: Call) -> Call:
    """A call that writes its `out`, or element by element its first argument, as one whose result lies there.

    The fast kernels are those of the functional operators. Where they have none, the call stays as it is.
    """
    functional = None if call.redispatch else functional_of(call.op)
    if functional is None:
        return call
    kwargs = dict(call.kwargs)
    outs = [kwargs.pop(argument.name) for argument in call.op._schema.arguments if argument.is_out]
    target = outs[0] if outs else call.args[0]
    schema = functional._schema
    served = engine().has_kernel(schema.name, schema.overload_name) or (
        is_elementwise(functional) and out_overload(functional) is not None
    )
    if not isinstance(target, TensorRef) or not served:
        return call
    found = replace(call, op=functional, kwargs=kwargs, outs=(target,), fresh=(True,))
    return found if is_elementwise(functional) or target.buffer not in found.given() else call


def _append(tape: Any, call: Call, data: list[torch.Tensor], needed: list[bool]) -> str:
    """needed: for each slot of the call's results, whether anything reads it."""

    def resolve(value: Any) -> Any:
        if isinstance(value, TensorRef):
            return _view(data, value)
        if isinstance(value, (list, tuple)):
            return type(value)(resolve(item) for item in value)
        return value

    op, outs = call.op, call.outs
    schema = op._schema
    use_out = outs and not call.redispatch and not schema.is_mutable and len(outs) == len(schema.returns)
    try:
        return tape.append(
            schema.name,
            schema.overload_name,
            resolve(call.args),
            {name: resolve(value) for name, value in call.kwargs.items()},
            [_view(data, ref) for ref in outs],
            list(call.fresh),
            needed,
            out_overload(op) if use_out else None,
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
