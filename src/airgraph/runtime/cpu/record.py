"""Records a program for the CPU: the walk, the memory of its buffers, the launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from airgraph.memory.budget import check_budget
from airgraph.memory.footprint import Footprint
from airgraph.memory.pool import ArenaPool
from airgraph.options import Options
from airgraph.program.inputs import InputPolicy, InputRole
from airgraph.program.program import CaptureProgram
from airgraph.program.stream_marks import event_of
from airgraph.program.streams import stream_of
from airgraph.runtime.cpu.assemble import Weight, assemble, check_plan, plan_arena
from airgraph.runtime.cpu.graph import CpuGraph, InputBuffer
from airgraph.runtime.cpu.recorder import Recorder
from airgraph.runtime.cpu.tape import BufferKind
from airgraph.runtime.engine.loading import engine
from airgraph.runtime.recording.inputs import BufferForm, CaptureInput, bind_inputs, buffer_forms
from airgraph.runtime.recording.outputs import Constant, Output, Owned
from airgraph.runtime.recording.walk import Walk, constants_of

__all__ = ["record"]


class _Recording(Walk):
    """Gives each operator to the recorder; values are tensors without memory."""

    def __init__(self, program: CaptureProgram, inputs: Sequence[CaptureInput], recorder: Recorder) -> None:
        super().__init__(program, inputs)
        self._recorder = recorder

    def buffer_for(self, given: CaptureInput, form: BufferForm) -> torch.Tensor:
        return self._recorder.input_buffer(form)

    def call(self, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], where: str) -> Any:
        self._recorder.order.current = self.stream
        return self._recorder.record(op, args, kwargs, where)

    def mark(self, node: Node) -> None:
        order, stream = self._recorder.order, stream_of(node)
        event = event_of(node)
        if event is None:
            (tensor,) = (self._values[used] for used in node.all_input_nodes)
            self._recorder.keep_to_the_end(tensor)
        elif event[1]:
            order.wait(event[0], stream)
        else:
            order.record(event[0], stream)

    def made_here(self, value: torch.Tensor) -> bool:
        return self._recorder.buffer_of(value) is not None


def record(program: CaptureProgram, inputs: Sequence[CaptureInput], pool: ArenaPool, options: Options) -> CpuGraph:
    """A graph of the program for these inputs. Raises UnsupportedGraph."""
    recorder = Recorder(keep_external=False)
    walk = _Recording(program, inputs, recorder)
    with torch.no_grad():
        outputs = walk.run()
    native = engine()
    refs = [recorder.ref(out) if isinstance(out, torch.Tensor) else None for out in outputs]
    copied = dict(zip(buffer_forms(inputs), recorder.inputs, strict=True))
    recording = recorder.finish()
    made = sorted({ref.buffer for ref in refs if ref and recording.buffers[ref.buffer].kind is not BufferKind.EXTERNAL})
    # An output that is the copy of an input lies where outputs do.
    buffered = [ref.buffer for ref in copied.values() if ref.buffer not in made]
    arena = plan_arena(recording, {*made, *buffered})
    if options.verify_every:
        check_plan(arena)
    footprint = Footprint(
        arena.plan.peak,
        tuple(recording.buffers[buffer].nbytes for buffer in buffered),
        sum(recording.buffers[buffer].nbytes for buffer in made),
    )
    check_budget(pool, footprint, options.memory_budget)
    lease = pool.take(footprint)
    # Without memory for now: the launch points these at memory that it shares with the caller.
    placed = {buffer: native.bytes_at(0, recording.buffers[buffer].nbytes) for buffer in made}
    buffers = []
    for position, buffer in enumerate(buffered):
        nbytes = recording.buffers[buffer].nbytes
        if native.MOVES_MEMORY:
            buffers.append(InputBuffer(nbytes))
            pool.inputs.block(position, nbytes, buffers[-1])
            placed[buffer] = buffers[-1].data
        else:
            placed[buffer] = pool.inputs.block(position, nbytes)[:nbytes]
    assembled = assemble(
        recording,
        arena,
        placed,
        lease,
        options.max_streams,
        exact=options.kernels == "exact",
        weights=_weights(recorder, inputs) if options.pack_weights else {},
    )
    if pool.neighbours is None:
        pool.neighbours = native.Neighbours()
    followed = _followed_storages(program, recorder, inputs, options)
    launch = native.Launch(
        tape=assembled.tape,
        policy=getattr(native.LiveOutputs, options.live_outputs),
        neighbours=pool.neighbours,
        replay_lock=pool.replay_lock,
        name=program.name,
        follows=followed is not None,
    )
    bind_inputs(launch, inputs, {index: assembled.view(ref) for index, ref in copied.items()})
    for operand in assembled.packed:
        launch.add_packed_input(operand.weight.index, operand.panels)
    for buffer, members in (followed or {}).items():
        launch.add_followed_storage(assembled.data[buffer], members)
    storages = {buffer: launch.add_output_storage(assembled.data[buffer]) for buffer in made}
    final: list[Output] = []
    count = 0
    for out, ref in zip(outputs, refs, strict=True):
        if ref is None:
            final.append(out)
        elif ref.buffer not in storages:
            final.append(Constant(out))
        else:
            launch.add_output(storage=storages[ref.buffer], **ref.form)
            final.append(Owned(count))
            count += 1
    return CpuGraph(recording, assembled, launch, final, buffers, walk.copied_nbytes)


def _weights(recorder: Recorder, inputs: Sequence[CaptureInput]) -> dict[int, list[Weight]]:
    """The arguments that lie in each buffer. Packed may be parameters and buffers that count their versions and are
    looked at in each call."""
    found: dict[int, list[Weight]] = {}
    for each in inputs:
        if each.policy in (InputPolicy.KEY, InputPolicy.COPY):
            continue
        buffer = recorder.buffer_of(each.arg)
        if buffer is not None:
            is_static = each.plan.role is InputRole.STATIC and each.policy is InputPolicy.IN_PLACE
            may_be_packed = is_static and each.is_watched and not each.arg.is_inference()
            found.setdefault(buffer, []).append(Weight(each.index, each.arg, may_be_packed))
    return found


def _followed_storages(
    program: CaptureProgram, recorder: Recorder, inputs: Sequence[CaptureInput], options: Options
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
    for each in inputs:
        if each.policy in (InputPolicy.KEY, InputPolicy.COPY):
            continue
        arg, buffer = each.arg, recorder.buffer_of(each.arg)
        if each.policy is InputPolicy.KEEP or not each.is_watched:
            fixed.add(buffer)
        elif buffer is not None:
            offset_bytes = arg.data_ptr() - arg.untyped_storage().data_ptr() if arg.numel() else 0
            found.setdefault(buffer, []).append((each.index, offset_bytes))
    return None if fixed & found.keys() else found
