"""From a recording to a tape: plans the memory, places buffers, prepares every call."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from airgraph.errors import InternalError, UnsupportedGraph
from airgraph.memory.plan import ALIGNMENT, Lifetime, Plan, assign_offsets
from airgraph.memory.pool import Lease
from airgraph.memory.verify import violations
from airgraph.program.inputs import span_nbytes
from airgraph.program.order import WorkOrder
from airgraph.program.trees import mapped
from airgraph.runtime.choices import Choice
from airgraph.runtime.cpu.beside import Beside, beside_one_another, threads_of_a_call
from airgraph.runtime.cpu.out_variants import functional_of, is_elementwise, out_overload, takes_any_strides
from airgraph.runtime.cpu.product_times import product_times
from airgraph.runtime.cpu.products import Way, choose, packed_weight, product_of
from airgraph.runtime.cpu.tape import BufferKind, Call, Recording, TensorRef
from airgraph.runtime.engine.loading import engine

__all__ = ["ArenaPlan", "Assembled", "PackedOperand", "Weight", "assemble", "check_plan", "plan_arena"]


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """Which buffers of a recording the arena holds, when and where. lifetimes and plan: in the order of `buffers`.

    order: of what happens before the first call, of the calls, and of what happens after the last.
    edges: lifetimes of input buffers, which are filled before the first call, and of outputs, which outlive the last.
    """

    buffers: tuple[int, ...]
    lifetimes: tuple[Lifetime, ...]
    order: WorkOrder
    plan: Plan
    edges: tuple[Lifetime, ...]


@dataclass(frozen=True, slots=True)
class Weight:
    """An argument that is used where it lies. index: among the arguments. may_be_packed: whether a tape may read it in
    panels, as long as it is what it was."""

    index: int
    arg: torch.Tensor
    may_be_packed: bool

    def overlap_nbytes(self, matrix: torch.Tensor) -> int:
        """How many bytes of a matrix over the same storage lie within it."""
        begin = max(self.arg.data_ptr(), matrix.data_ptr())
        end = min(each.data_ptr() + span_nbytes(each) for each in (self.arg, matrix))
        return max(0, end - begin)


@dataclass(frozen=True, slots=True)
class PackedOperand:
    """weight: which is packed. panels: the engine's, made from it."""

    weight: Weight
    panels: Any


@dataclass(frozen=True, slots=True)
class Assembled:
    """tape: of the engine. data: each buffer as bytes where it lies. tiers: which serves each call.

    threads: how many run it at most; 1: its streams one after another, for threads_reason. exact: by eager's kernels
    only. products: how those of many rows are computed, by their calls. packed: the weights of which the tape reads
    panels.
    """

    tape: Any
    data: tuple[torch.Tensor, ...]
    lease: Lease
    arena: ArenaPlan
    tiers: tuple[str, ...]
    threads: int
    threads_reason: str
    exact: bool
    products: Mapping[int, Choice]
    packed: tuple[PackedOperand, ...]

    def view(self, ref: TensorRef) -> torch.Tensor:
        return _view(engine(), self.data, ref)


def plan_arena(recording: Recording, elsewhere: Collection[int]) -> ArenaPlan:
    """Offsets of the intermediates, each used by the calls that touch it.

    elsewhere: buffers that do not lie in the arena, such as inputs and outputs.
    """
    order = _with_edges(recording.order)
    before, after = 0, len(order) - 1
    uses: dict[int, set[int]] = {}
    for step, touched in enumerate(recording.touched, start=before + 1):
        for buffer in touched:
            uses.setdefault(buffer, set()).add(step)
    for kept in recording.to_the_end & uses.keys():
        uses[kept].add(after)
    buffers = tuple(
        index
        for index, buffer in enumerate(recording.buffers)
        if index in uses and index not in elsewhere and buffer.kind is not BufferKind.EXTERNAL
    )
    lifetimes = tuple(Lifetime(frozenset(uses[i]), recording.buffers[i].nbytes) for i in buffers)
    edges = []
    for i in elsewhere:
        edge = before if recording.buffers[i].kind is BufferKind.INPUT else after
        edges.append(Lifetime(frozenset(uses.get(i, set()) | {edge}), recording.buffers[i].nbytes))
    return ArenaPlan(buffers, lifetimes, order, assign_offsets(lifetimes, order), tuple(edges))


def _with_edges(calls: WorkOrder) -> WorkOrder:
    """The order of calls with a step before all of them and one after."""
    order = WorkOrder(streams=calls.streams)
    order.append(0)
    for step, stream in enumerate(calls.stream_of, start=1):
        # What a stream is given later comes after its first call, and so after that step too.
        first = [0] if order.last_of(stream) is None else []
        order.append(stream, [*first, *(other + 1 for other in calls.waits.get(step - 1, ()))])
    ends = [order.last_of(stream) for stream in range(1, order.streams)]
    order.append(0, [end for end in ends if end is not None])
    return order


def check_plan(arena: ArenaPlan) -> None:
    """Raises InternalError if the plan lets two buffers overlap that are used at the same time."""
    wrong = violations(arena.lifetimes, arena.order, arena.plan, alignment=ALIGNMENT)
    if wrong:
        raise InternalError(f"the memory plan is wrong, please report it: {'; '.join(wrong[:3])}")


def assemble(
    recording: Recording,
    arena: ArenaPlan,
    placed: Mapping[int, torch.Tensor],
    lease: Lease,
    max_streams: int | None = None,
    *,
    exact: bool,
    weights: Mapping[int, Sequence[Weight]] = MappingProxyType({}),
    products: Mapping[int, Choice] | None = None,
) -> Assembled:
    """Prepare a tape.

    placed: the buffers that do not lie in the arena, as bytes. lease: holds a region for the arena. max_streams: that
    run beside one another; None: one a core. exact: by eager's kernels only. weights: in each buffer, the arguments, of
    which some may be kept in panels. products: how those of many rows were chosen to be computed before; None: choose.
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
    touches = Counter(itertools.chain.from_iterable(recording.touched))
    calls = [_as_functional(call) for call in recording.calls]
    view = functools.partial(_view, native, data)
    written = {ref.buffer for call in recording.calls for ref in call.writes()} if weights else set()

    def weight_of(ref: TensorRef) -> Weight | None:
        return None if ref.buffer in written else _weight_of(view(ref), weights.get(ref.buffer, ()))

    chosen: dict[int, Choice] = dict(products or {})
    threads_of_each = torch.get_num_threads()
    if products is None and native.CHOOSES_PRODUCTS and not exact:
        there = {index for index, buffer in enumerate(recording.buffers) if buffer.kind is BufferKind.EXTERNAL}
        if recording.order.streams > 1 and max_streams != 0:
            threads_of_each = threads_of_a_call(recording, max_streams)
        chosen = choose(calls, view, there, lambda ref: weight_of(ref) is not None, product_times(), threads_of_each)
    packed: list[PackedOperand] = []
    for index, (call, served) in enumerate(zip(recording.calls, calls, strict=True)):
        choice = chosen.get(index)
        product = product_of(served) if choice is not None and choice.way == Way.PACKED else None
        weight = None if product is None else weight_of(product.right)
        operand = None
        if product is not None and weight is not None:
            operand = PackedOperand(weight, packed_weight(weight.arg, view(product.right)))
        # A result that is written into an argument is needed whoever reads it.
        needed = [served is not call or ref.buffer in placed or touches[ref.buffer] > 1 for ref in served.outs]
        by_aten = exact or (choice is not None and choice.way == Way.ATEN)
        tiers.append(_append(native, tape, served, view, needed, by_aten, operand))
        if operand is not None and tiers[-1] == "own":
            packed.append(operand)
        elif choice is not None:
            # Its operands lie otherwise than is served; or a profile has no weights to pack.
            chosen[index] = dataclasses.replace(choice, way=(Way.OWN if tiers[-1] == "own" else Way.ATEN).value)
    beside = beside_one_another(recording, max_streams, tiers)
    if isinstance(beside, Beside):
        segments = [
            native.Segment(stream=each.stream, calls=list(each.calls), waits=list(each.waits), on_caller=each.on_caller)
            for each in beside.segments
        ]
        tape.run_beside(segments, beside.threads, beside.is_worth_waking)
        threads, reason = beside.threads, ""
    elif chosen and threads_of_each < threads_of_a_call(recording, max_streams=0):
        # Chosen for what streams would have had of the threads, and none divides them.
        alone = assemble(recording, arena, placed, lease, max_streams=0, exact=exact, weights=weights)
        return dataclasses.replace(alone, threads_reason=beside.reason)
    else:
        threads, reason = 1, beside.reason
    return Assembled(tape, tuple(data), lease, arena, tuple(tiers), threads, reason, exact, chosen, tuple(packed))


def _weight_of(matrix: torch.Tensor, weights: Iterable[Weight]) -> Weight | None:
    """What a matrix lies in, if that may be packed. None too where several arguments share its memory, each with
    versions of its own."""
    sharing = [each for each in weights if each.overlap_nbytes(matrix)]
    if len(sharing) != 1 or not sharing[0].may_be_packed or sharing[0].overlap_nbytes(matrix) < span_nbytes(matrix):
        return None
    return sharing[0]


def _as_functional(call: Call) -> Call:
    """A call that writes its `out`, or element by element its first argument, as one whose result lies there.

    The fast kernels are those of the functional operators. Where they have none, the call stays as it is.
    """
    traits = _traits(call.op)
    functional = None if call.redispatch else traits.functional
    if functional is None:
        return call
    kwargs = dict(call.kwargs)
    outs = [kwargs.pop(name) for name in traits.out_arguments]
    target = outs[0] if outs else call.args[0]
    of_functional = _traits(functional)
    elementwise = is_elementwise(functional)
    served = engine().has_kernel(of_functional.name, of_functional.overload) or (
        elementwise and out_overload(functional) is not None
    )
    if not isinstance(target, TensorRef) or not served:
        return call
    found = Call(functional, call.args, kwargs, (target,), (True,), call.redispatch, call.source)
    return found if elementwise or target.buffer not in found.given() else call


def _lies_as_new(call: Call) -> bool:
    """Whether its results lie as in new tensors, and if there are several, its arguments too.

    A fake kernel may give strides that the real one would not choose. Not every kernel copes with them in `out`, or, of
    those with several results, with arguments that lie otherwise; and random numbers are drawn in another order.
    """
    asked = call.outs if len(call.outs) == 1 else (*call.outs, *call.refs())
    return all(ref.is_row_major for ref in asked)


@dataclass(frozen=True, slots=True)
class _Traits:
    """What assembling asks of an operator at each call of it. out_arguments: their names. functional: see
    `functional_of`."""

    name: str
    overload: str
    is_mutable: bool
    returns: int
    takes_any_strides: bool
    out_arguments: tuple[str, ...]
    functional: torch._ops.OpOverload | None


@functools.cache
def _traits(op: torch._ops.OpOverload) -> _Traits:
    schema = op._schema
    return _Traits(
        name=schema.name,
        overload=schema.overload_name,
        is_mutable=schema.is_mutable,
        returns=len(schema.returns),
        takes_any_strides=takes_any_strides(op),
        out_arguments=tuple(each.name for each in schema.arguments if each.is_out),
        functional=functional_of(op),
    )


def _append(
    native: Any,
    tape: Any,
    call: Call,
    view: Callable[[TensorRef], torch.Tensor],
    needed: list[bool],
    exact: bool,
    packed: PackedOperand | None,
) -> str:
    """needed: for each slot of the call's results, whether anything reads it. packed: of a product's matrix."""
    op, outs = call.op, call.outs
    traits = _traits(op)
    is_plain = outs and not call.redispatch and not traits.is_mutable and len(outs) == traits.returns
    use_out = is_plain and (traits.takes_any_strides or _lies_as_new(call))
    try:
        recorded = native.RecordedCall(
            name=traits.name,
            overload=traits.overload,
            args=mapped(TensorRef, view, call.args),
            kwargs={name: mapped(TensorRef, view, value) for name, value in call.kwargs.items()},
            outs=list(map(view, outs)),
            fresh=call.fresh,
            needed=needed,
            out_overload=out_overload(op) if use_out else None,
            redispatch=call.redispatch,
            exact=exact,
            packed=None if packed is None else packed.panels,
        )
        return tape.append(recorded)
    except RuntimeError as error:
        reason = f"the CPU engine cannot serve it ({str(error).splitlines()[0]})"
        raise UnsupportedGraph(reason, operator=call.op.name(), source=call.source) from error


def _view(native: Any, data: Sequence[torch.Tensor], ref: TensorRef) -> torch.Tensor:
    if ref.buffer >= len(data):
        raise InternalError(f"buffer {ref.buffer} was not placed")
    made: torch.Tensor = native.view_at(data[ref.buffer], **ref.form)
    return made
