"""Records a program for the CPU and runs the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from airgraph.errors import ReplayError, UnsupportedGraph
from airgraph.memory.pool import MemoryPool
from airgraph.options import Options
from airgraph.program import source_lines
from airgraph.program.inputs import InputRole
from airgraph.program.program import CaptureProgram
from airgraph.runtime.cpu.assemble import assemble
from airgraph.runtime.cpu.engine import engine
from airgraph.runtime.cpu.recorder import Recorder
from airgraph.runtime.cpu.tape import BufferKind, Recording

__all__ = ["CpuGraph", "CpuRuntime", "replay_error"]

_ABSOLUTE_VIEWS = {"aten::as_strided", "aten::as_strided_copy", "aten::as_strided_scatter"}
# What ATen raises for a call that eager would refuse as well.
_OPERATOR_ERRORS = (RuntimeError, TypeError, ValueError, IndexError)


class CpuRuntime:
    """Serves `DeviceRuntime` by the native tape."""

    device_type = "cpu"

    def open_pool(self) -> MemoryPool:
        return MemoryPool("cpu")

    def synchronize(self) -> None:
        """Nothing runs behind the caller's back on CPU."""

    def record(self, program: CaptureProgram, args: list[Any], pool: MemoryPool, options: Options) -> CpuGraph:
        recorder = Recorder(keep_external=False)
        with torch.no_grad():
            outputs = _Interpretation(program, recorder, args).run()
        return _build(program, recorder, outputs, args, pool, options)


@dataclass(frozen=True, slots=True)
class _Owned:
    """Output `position` among those that the launch makes."""

    position: int


@dataclass(frozen=True, slots=True)
class _InputView:
    """A view of argument `index`; delta: of the storage offset, in elements. None: the argument itself."""

    index: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    delta: int | None


@dataclass(frozen=True, slots=True)
class _Constant:
    value: Any


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
        self._all_owned = [type(out) for out in outputs] == [_Owned] * len(outputs)
        self._addresses = addresses
        self.nodes = len(recording.calls)
        self.arena_nbytes = assembled.arena.nbytes + launch.output_nbytes()
        self.copied_nbytes = sum(b.nbytes for b in recording.buffers if b.kind is BufferKind.INPUT)
        self.tiers = assembled.tiers
        self.plan = assembled.plan
        self.lifetimes = assembled.lifetimes
        self.check = launch.check
        self.held_outputs = launch.held_outputs

    def captured_address(self, index: int) -> int:
        return self._addresses[index]

    def run(self, args: list[Any]) -> list[Any]:
        try:
            made = self._launch.run(args)
        except engine().ReplayFailure as failure:
            raise replay_error(self._recording, failure) from failure
        if self._all_owned:
            return made
        return [self._output(out, made, args) for out in self._outputs]

    def replay(self) -> None:
        try:
            self._assembled.tape.replay()
        except engine().ReplayFailure as failure:
            raise replay_error(self._recording, failure) from failure

    @staticmethod
    def _output(out: Any, made: list[torch.Tensor], args: list[Any]) -> Any:
        if isinstance(out, _Owned):
            return made[out.position]
        if isinstance(out, _Constant):
            return out.value
        if out.delta is None:
            return args[out.index]
        return args[out.index].as_strided(out.shape, out.stride, args[out.index].storage_offset() + out.delta)


def replay_error(recording: Recording, failure: Exception) -> ReplayError:
    """The error of a failed replay in the user's terms."""
    index, message = failure.args
    call = recording.calls[index]
    where = f" at {call.source}" if call.source else ""
    return ReplayError(f"{call.op.name()}{where} failed in replay: {message}")


class _Interpretation:
    """Walks the FX graph once, recording its operators."""

    def __init__(self, program: CaptureProgram, recorder: Recorder, args: list[Any]) -> None:
        self._program = program
        self._recorder = recorder
        self._args = args
        self._values: dict[Node, Any] = {}

    def run(self) -> list[Any]:
        """The program's outputs: tensors without values, or _InputView and _Constant."""
        placeholders = iter(zip(self._program.inputs, self._args, strict=True))
        for node in self._program.gm.graph.nodes:
            if node.op == "placeholder":
                plan, arg = next(placeholders)
                copied = plan.role is InputRole.USER
                self._values[node] = self._recorder.input_buffer(arg) if copied else arg
            elif node.op == "get_attr":
                self._values[node] = _attribute(self._program.gm, node.target)
            elif node.op == "call_function":
                self._values[node] = self._call(node)
        return [self._output(i, out) for i, out in enumerate(self._program.gm.graph.output_node().args[0])]  # type: ignore[arg-type]

    def _call(self, node: Node) -> Any:
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), self._values.__getitem__)
        if not isinstance(node.target, torch._ops.OpOverload):
            return node.target(*args, **kwargs)  # type: ignore[operator]
        where = source_lines.of_node(node)
        if node.target._schema.name in _ABSOLUTE_VIEWS:
            self._check_absolute_view(node, where)
        try:
            return self._recorder.record(node.target, args, kwargs, where)
        except _OPERATOR_ERRORS as error:
            reason = f"it fails on these inputs ({str(error).splitlines()[0]})"
            raise UnsupportedGraph(reason, operator=node.target.name(), source=where) from error

    def _check_absolute_view(self, node: Node, where: str) -> None:
        """Strides and offset of as_strided are those of the caller's storage; a copied input has another."""
        base: Any = node.args[0]
        while base.op == "call_function" and isinstance(base.target, torch._ops.OpOverload) and base.target.is_view:
            base = base.args[0]
        if base.op != "placeholder":
            return
        plan, arg = next((p, a) for n, p, a in self._placeholders() if n is base)
        if plan.role is InputRole.USER and not _fills_its_storage(arg):
            reason = f"it addresses the storage of {plan.source}, of which only the tensor's part is copied in"
            raise UnsupportedGraph(reason, operator=node.target.name(), source=where)  # type: ignore[union-attr]

    def _placeholders(self) -> list[tuple[Node, Any, Any]]:
        nodes = self._program.gm.graph.find_nodes(op="placeholder")
        return list(zip(nodes, self._program.inputs, self._args, strict=True))

    def _output(self, index: int, out: Any) -> Any:
        if not isinstance(out, Node):
            return _Constant(out)
        base = self._program.input_views.get(index)
        if base is not None:
            return self._input_view(base, out)
        value = self._values[out]
        if not isinstance(value, torch.Tensor):
            return _Constant(value)
        for plan, arg in zip(self._program.inputs, self._args, strict=True):
            if isinstance(arg, torch.Tensor) and arg.untyped_storage()._cdata == value.untyped_storage()._cdata:
                # Written in place by the graph.
                delta = int(value.storage_offset() - arg.storage_offset())
                return _InputView(plan.index, tuple(value.shape), value.stride(), delta)
        return value if self._recorder.buffer_of(value) is not None else _Constant(value)

    def _input_view(self, base: int, out: Node) -> _InputView:
        arg = self._args[base]
        if out.op == "placeholder":
            return _InputView(base, (), (), None)
        view = self._on_real_input(out)
        if view.dtype != arg.dtype or view.is_conj() != arg.is_conj() or view.is_neg() != arg.is_neg():
            raise UnsupportedGraph("an output is an input seen as another dtype", source=source_lines.of_node(out))
        return _InputView(base, tuple(view.shape), view.stride(), view.storage_offset() - arg.storage_offset())

    def _on_real_input(self, node: Node) -> Any:
        if node.op == "placeholder":
            return next(arg for placeholder, _, arg in self._placeholders() if placeholder is node)
        rest = torch.fx.node.map_arg((node.args[1:], node.kwargs), self._values.__getitem__)
        return node.target(self._on_real_input(node.args[0]), *rest[0], **rest[1])  # type: ignore[operator,arg-type]


def _fills_its_storage(tensor: torch.Tensor) -> bool:
    dense = torch.ops.aten.is_non_overlapping_and_dense.default(tensor)
    return dense and tensor.storage_offset() == 0 and tensor.untyped_storage().nbytes() == tensor.nbytes


def _attribute(gm: torch.fx.GraphModule, target: Any) -> Any:
    value: Any = gm
    for name in str(target).split("."):
        value = getattr(value, name)
    return value


def _build(
    program: CaptureProgram,
    recorder: Recorder,
    outputs: list[Any],
    args: list[Any],
    pool: MemoryPool,
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
    storages = {buffer: launch.add_output_storage(assembled.data[buffer]) for buffer in sorted(made)}
    final: list[Any] = []
    count = 0
    for out, ref in zip(outputs, refs, strict=True):
        if ref is None:
            final.append(out)
        elif ref.buffer not in storages:
            final.append(_Constant(out))
        else:
            launch.add_output(
                storages[ref.buffer], ref.dtype, list(ref.shape), list(ref.stride), ref.offset, ref.conj, ref.neg
            )
            final.append(_Owned(count))
            count += 1
    return CpuGraph(recording, assembled, launch, final, addresses)


def _user_indices(program: CaptureProgram) -> list[int]:
    return [plan.index for plan in program.inputs if plan.role is InputRole.USER]
