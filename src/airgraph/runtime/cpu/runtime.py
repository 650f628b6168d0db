"""Records a program for the CPU and runs the result."""

from __future__ import annotations

import os
from typing import Any

import torch

from airgraph.errors import ReplayError
from airgraph.memory.pool import ArenaPool
from airgraph.options import Options
from airgraph.program.inputs import InputPlan, InputRole
from airgraph.program.program import CaptureProgram
from airgraph.runtime.base import Capabilities, DeviceMemory, InputProblem
from airgraph.runtime.cpu import streams
from airgraph.runtime.cpu.assemble import assemble
from airgraph.runtime.cpu.engine import engine
from airgraph.runtime.cpu.recorder import Recorder
from airgraph.runtime.cpu.tape import BufferKind, Recording
from airgraph.runtime.interpretation import Constant, Interpretation, Owned, finish_output

__all__ = ["CpuGraph", "CpuRuntime", "replay_error"]


class CpuRuntime:
    """Serves `DeviceRuntime` by the native tape."""

    device_type = "cpu"
    capabilities = Capabilities(external_events=True, rng_in_graphs=True, stream_priorities=False, max_streams=None)

    def __init__(self) -> None:
        self._streams: dict[str, streams.Stream] = {}
        self._events: dict[str, streams.Event] = {}

    def open_pool(self, device: torch.device | None = None) -> ArenaPool:
        return ArenaPool()

    def synchronize(self) -> None:
        """Nothing runs behind the caller's back on CPU."""

    def stream(self, tag: str, priority: int = 0) -> streams.Stream:
        return self._streams.setdefault(tag, streams.Stream(priority))

    def event(self, tag: str) -> streams.Event:
        return self._events.setdefault(tag, streams.Event())

    def memory(self, device: torch.device | None = None) -> DeviceMemory:
        page = os.sysconf("SC_PAGE_SIZE")
        return DeviceMemory(os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page)

    def record(self, program: CaptureProgram, args: list[Any], pool: ArenaPool, options: Options) -> CpuGraph:
        recorder = Recorder(keep_external=False)
        with torch.no_grad():
            outputs = _Recording(program, args, recorder).run()
        return _build(program, recorder, outputs, args, pool, options)


class CpuGraph:
    """Serves `DeviceGraph`."""

    streams = 1

    def __init__(
        self, recording: Recording, assembled: Any, launch: Any, outputs: list[Any], addresses: dict[int, int]
    ) -> None:
        self._recording = recording
        self._assembled = assembled
        self._launch = launch
        self._outputs = outputs
        self._all_owned = all(type(out) is Owned for out in outputs)
        self._addresses = addresses
        self.nodes = len(recording.calls)
        self.arena_nbytes = assembled.arena.nbytes + launch.output_nbytes()
        self.copied_nbytes = sum(b.nbytes for b in recording.buffers if b.kind is BufferKind.INPUT)
        self.tiers = assembled.tiers
        self.plan = assembled.plan
        self.lifetimes = assembled.lifetimes
        self.held_outputs = launch.held_outputs

    def captured_address(self, index: int) -> int:
        return self._addresses[index]

    def run(self, args: list[Any]) -> list[Any] | InputProblem:
        try:
            made: list[Any] | InputProblem = self._launch.run(args)
        except engine().ReplayFailure as failure:
            raise replay_error(self._recording, failure) from failure
        if self._all_owned or isinstance(made, tuple):
            return made
        return [finish_output(out, made, args) for out in self._outputs]

    def replay(self) -> None:
        try:
            self._assembled.tape.replay()
        except engine().ReplayFailure as failure:
            raise replay_error(self._recording, failure) from failure


def replay_error(recording: Recording, failure: Exception) -> ReplayError:
    """The error of a failed replay in the user's terms."""
    index, message = failure.args
    call = recording.calls[index]
    where = f" at {call.source}" if call.source else ""
    return ReplayError(f"{call.op.name()}{where} failed in replay: {message}")


class _Recording(Interpretation):
    """Gives each operator to the recorder; values are tensors without memory."""

    def __init__(self, program: CaptureProgram, args: list[Any], recorder: Recorder) -> None:
        super().__init__(program, args)
        self._recorder = recorder

    def bring_in(self, plan: InputPlan, arg: Any) -> Any:
        return self._recorder.input_buffer(arg) if plan.role is InputRole.USER else arg

    def call(self, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], where: str) -> Any:
        return self._recorder.record(op, args, kwargs, where)

    def made_here(self, value: torch.Tensor) -> bool:
        return self._recorder.buffer_of(value) is not None


def _build(
    program: CaptureProgram,
    recorder: Recorder,
    outputs: list[Any],
    args: list[Any],
    pool: ArenaPool,
    options: Options,
) -> CpuGraph:
    native = engine()
    refs = [recorder.ref(out) if isinstance(out, torch.Tensor) else None for out in outputs]
    inputs = dict(zip(_user_indices(program), recorder.inputs, strict=True))
    recording = recorder.finish()
    made = {ref.buffer for ref in refs if ref and recording.buffers[ref.buffer].kind is not BufferKind.EXTERNAL}
    # Placeholders for addresses: the launch points these buffers at memory that it shares with the caller.
    assembled = assemble(recording, dict.fromkeys(made, 0), pool)
    launch = native.Launch(assembled.tape, getattr(native.LiveOutputs, options.live_outputs))
    addresses = {}
    for plan in program.in_place(frozen_parameter=options.frozen_parameter):
        addresses[plan.index] = args[plan.index].data_ptr()
        launch.add_fixed_input(plan.index, addresses[plan.index])
    for index, buffer in inputs.items():
        launch.add_copied_input(index, assembled.view(buffer))
    for plan in program.inputs:
        if plan.role is InputRole.MUTATED:
            launch.add_written_input(plan.index)
    storages = {buffer: launch.add_output_storage(assembled.data[buffer]) for buffer in sorted(made)}
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
    return CpuGraph(recording, assembled, launch, final, addresses)


def _user_indices(program: CaptureProgram) -> list[int]:
    return [plan.index for plan in program.inputs if plan.role is InputRole.USER]
