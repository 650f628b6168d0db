"""Records a program for the CPU and runs the result."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import torch

from airgraph.errors import ReplayError
from airgraph.memory.budget import check_budget
from airgraph.memory.footprint import Footprint
from airgraph.memory.occupancy import Slot
from airgraph.memory.pool import ArenaPool
from airgraph.options import Options
from airgraph.program.inputs import InputPlan, InputRole
from airgraph.program.program import CaptureProgram
from airgraph.runtime.base import Capabilities, DeviceMemory, InputProblem
from airgraph.runtime.cpu import streams
from airgraph.runtime.cpu.assemble import Assembled, assemble, plan_arena
from airgraph.runtime.cpu.engine import engine
from airgraph.runtime.cpu.recorder import Recorder
from airgraph.runtime.cpu.tape import BufferKind, Recording
from airgraph.runtime.input_forms import BufferForm, bind_inputs, buffer_forms, keeps
from airgraph.runtime.interpretation import Constant, Interpretation, Owned, constants_of, finish_output

__all__ = ["CpuGraph", "CpuRuntime", "replay_error"]


class CpuRuntime:
    """Serves `DeviceRuntime` by the native tape."""

    device_type = "cpu"
    capabilities = Capabilities(external_events=True, rng_in_graphs=True, stream_priorities=False, max_streams=None)

    def __init__(self) -> None:
        self._streams: dict[str, streams.Stream] = {}
        self._events: dict[str, streams.Event] = {}

    def open_pool(self, device: torch.device | None = None) -> ArenaPool:
        return ArenaPool(engine().Turn())

    def adopt_pool(self, handle: object, device: torch.device) -> ArenaPool | None:
        return None

    def synchronize(self) -> None:
        """Nothing runs behind the caller's back on CPU."""

    def stream(self, tag: str, priority: int = 0) -> streams.Stream:
        return self._streams.setdefault(tag, streams.Stream(priority))

    def event(self, tag: str, *, external: bool = False) -> streams.Event:
        return self._events.setdefault(tag, streams.Event())

    def memory(self, device: torch.device | None = None) -> DeviceMemory:
        page = os.sysconf("SC_PAGE_SIZE")
        return DeviceMemory(os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page)

    def record(self, program: CaptureProgram, args: list[Any], pool: ArenaPool, options: Options) -> CpuGraph:
        recorder = Recorder(keep_external=False)
        forms = buffer_forms(program, args, options)
        walk = _Recording(program, args, recorder, forms)
        with torch.no_grad():
            outputs = walk.run()
        return _build(program, recorder, outputs, walk.copied_nbytes, args, forms, pool, options)


class CpuGraph:
    """Serves `DeviceGraph`."""

    streams = 1

    def __init__(
        self,
        recording: Recording,
        assembled: Assembled,
        launch: Any,
        outputs: list[Any],
        slots: list[_InputSlot],
        copied_nbytes: int,
    ) -> None:
        self._recording = recording
        self._assembled = assembled
        self._launch = launch
        self._outputs = outputs
        self._all_owned = all(type(out) is Owned for out in outputs)
        self._slots = slots
        self.copied_nbytes = copied_nbytes
        self.nodes = len(recording.calls)
        self.footprint = assembled.lease.footprint
        self.tiers = Counter(assembled.tiers)
        self.plan = assembled.arena.plan
        self.lifetimes = assembled.arena.lifetimes
        self.edge_lifetimes = assembled.arena.edges
        self.held_outputs = launch.held_outputs

    def captured_address(self, index: int) -> int:
        return int(self._launch.captured_address(index))

    def run(self, args: list[Any]) -> list[Any] | InputProblem:
        return self._run(args, True)

    def call(self, args: list[Any]) -> list[Any] | InputProblem:
        return self._run(args, False)

    def _run(self, args: list[Any], has_turn: bool) -> list[Any] | InputProblem:
        try:
            made: list[Any] | InputProblem = self._launch.run(args, has_turn)
        except engine().ReplayFailure as failure:
            raise replay_error(self._recording, failure) from failure
        if self._all_owned or isinstance(made, tuple):
            return made
        return [finish_output(out, made, args) for out in self._outputs]

    def blank(self, args: list[Any]) -> list[Any]:
        made = self._launch.blank()
        return [finish_output(out, made, args) for out in self._outputs]

    def replay(self) -> None:
        try:
            self._launch.replay()
        except engine().ReplayFailure as failure:
            raise replay_error(self._recording, failure) from failure

    def occupancy(self) -> tuple[Slot, ...]:
        calls = self._recording.calls
        return tuple(
            Slot(offset, life.nbytes, life.first, life.last, calls[life.first].op.name())
            for life, offset in zip(self.lifetimes, self.plan.offsets, strict=True)
        )

    def describe(self) -> list[str]:
        """Operator, tier, where its results lie and how large they are, stream and the user's line."""
        offsets = dict(zip(self._assembled.arena.buffers, self.plan.offsets, strict=True))
        lines = [f"{'operator':40} {'tier':10} {'result at':>12} {'bytes':>12} {'stream':>6}  line"]
        for call, tier in zip(self._recording.calls, self._assembled.tiers, strict=True):
            ref = call.result()
            place, nbytes = "-", 0
            if ref is not None:
                buffer = self._recording.buffers[ref.buffer]
                place = str(offsets[ref.buffer]) if ref.buffer in offsets else buffer.kind.value
                nbytes = buffer.nbytes
            lines.append(f"{call.op.name():40} {tier:10} {place:>12} {nbytes:>12} {0:>6}  {call.source}")
        return lines

    def close(self) -> None:
        """Nothing to do: outputs own their memory."""


def replay_error(recording: Recording, failure: Exception) -> ReplayError:
    """The error of a failed replay in the user's terms."""
    index, message = failure.args
    call = recording.calls[index]
    where = f" at {call.source}" if call.source else ""
    return ReplayError(f"{call.op.name()}{where} failed in replay: {message}")


class _Recording(Interpretation):
    """Gives each operator to the recorder; values are tensors without memory."""

    def __init__(
        self, program: CaptureProgram, args: list[Any], recorder: Recorder, forms: Mapping[int, BufferForm]
    ) -> None:
        super().__init__(program, args)
        self._recorder = recorder
        self._forms = forms

    def bring_in(self, plan: InputPlan, arg: Any) -> Any:
        form = self._forms.get(plan.index)
        return arg if form is None else self._recorder.input_buffer(form)

    def call(self, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], where: str) -> Any:
        return self._recorder.record(op, args, kwargs, where)

    def made_here(self, value: torch.Tensor) -> bool:
        return self._recorder.buffer_of(value) is not None


class _InputSlot:
    """What the tape reads of one input buffer; it follows when the buffer moves."""

    def __init__(self, nbytes: int) -> None:
        self.data = engine().bytes_at(0, nbytes)

    def move_to(self, address: int) -> None:
        engine().point_at(self.data, address)


def _build(
    program: CaptureProgram,
    recorder: Recorder,
    outputs: list[Any],
    copied_nbytes: int,
    args: list[Any],
    forms: Mapping[int, BufferForm],
    pool: ArenaPool,
    options: Options,
) -> CpuGraph:
    native = engine()
    refs = [recorder.ref(out) if isinstance(out, torch.Tensor) else None for out in outputs]
    inputs = dict(zip(forms, recorder.inputs, strict=True))
    recording = recorder.finish()
    made = sorted({ref.buffer for ref in refs if ref and recording.buffers[ref.buffer].kind is not BufferKind.EXTERNAL})
    # An output that is the copy of an input lies where outputs do.
    buffered = [ref.buffer for ref in inputs.values() if ref.buffer not in made]
    arena = plan_arena(recording, {*made, *buffered})
    footprint = Footprint(
        arena.plan.peak,
        tuple(recording.buffers[buffer].nbytes for buffer in buffered),
        sum(recording.buffers[buffer].nbytes for buffer in made),
    )
    check_budget(pool, footprint, options.memory_budget)
    lease = pool.take(footprint)
    # Without memory for now: the launch points these at memory that it shares with the caller.
    placed = {buffer: native.bytes_at(0, recording.buffers[buffer].nbytes) for buffer in made}
    slots = []
    for position, buffer in enumerate(buffered):
        nbytes = recording.buffers[buffer].nbytes
        if native.MOVES_MEMORY:
            slots.append(_InputSlot(nbytes))
            pool.inputs.block(position, nbytes, slots[-1])
            placed[buffer] = slots[-1].data
        else:
            placed[buffer] = pool.inputs.block(position, nbytes)[:nbytes]
    assembled = assemble(recording, arena, placed, lease)
    if pool.neighbours is None:
        pool.neighbours = native.Neighbours()
    buffers = {index: (forms[index], assembled.view(ref)) for index, ref in inputs.items()}
    followed = _followed_storages(program, recorder, args, buffers, options)
    launch = native.Launch(
        assembled.tape,
        getattr(native.LiveOutputs, options.live_outputs),
        pool.neighbours,
        pool.turn,
        program.name,
        followed is not None,
    )
    bind_inputs(launch, program, args, buffers, options)
    for buffer, members in (followed or {}).items():
        launch.add_followed_storage(assembled.data[buffer], members)
    storages = {buffer: launch.add_output_storage(assembled.data[buffer]) for buffer in made}
    final: list[Any] = []
    count = 0
    for out, ref in zip(outputs, refs, strict=True):
        if ref is None:
            final.append(out)
        elif ref.buffer not in storages:
            final.append(Constant(out))
        else:
            launch.add_output(
                storages[ref.buffer], ref.dtype, list(ref.shape), list(ref.stride), ref.offset, ref.conj, ref.neg
            )
            final.append(Owned(count))
            count += 1
    return CpuGraph(recording, assembled, launch, final, slots, copied_nbytes)


def _followed_storages(
    program: CaptureProgram, recorder: Recorder, args: list[Any], buffers: Collection[int], options: Options
) -> dict[int, list[tuple[int, int]]] | None:
    """The buffers that placed inputs lie in, each with these inputs and how many bytes from its beginning.

    When the inputs move, the tape is pointed at where they are, and nothing is captured anew. None: it cannot be, or
    `on_input_move` says that it must not.
    """
    if options.on_input_move == "error" or not engine().MOVES_MEMORY:
        return None
    found: dict[int, list[tuple[int, int]]] = {}
    # Whatever else the tape finds in a storage does not move with the arguments.
    fixed = {recorder.buffer_of(constant) for constant in constants_of(program.gm)}
    for plan in program.inputs:
        arg = args[plan.index]
        if plan.role is InputRole.SCALAR or plan.index in buffers:
            continue
        buffer = recorder.buffer_of(arg)
        if keeps(plan, args, options) or (plan.parameter and options.frozen_parameter):
            fixed.add(buffer)
        elif buffer is not None:
            offset_bytes = arg.data_ptr() - arg.untyped_storage().data_ptr() if arg.numel() else 0
            found.setdefault(buffer, []).append((plan.index, offset_bytes))
    return None if fixed & found.keys() else found
