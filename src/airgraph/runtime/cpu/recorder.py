"""Records ATen calls without executing them.

The forms of a call's results are worked out, see `result_forms`, or propagated on fake tensors. The results handed
out are tensors without memory: views of them are made by ATen itself and cost nothing later, reading them is an error.
Which buffer a tensor lies in is known by the identity of its storage; who still holds a buffer at the end, by a weak
reference.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from airgraph.errors import UnsupportedGraph
from airgraph.program.operators import functional_form, is_view_operator, keeps_program_order, written_arguments
from airgraph.program.support import capture_obstacle
from airgraph.program.trees import leaves_of, mapped
from airgraph.runtime.cpu.collectives import is_collective, record_collective
from airgraph.runtime.cpu.result_forms import result_forms
from airgraph.runtime.cpu.tape import Buffer, BufferKind, Call, Recording, TensorRef
from airgraph.runtime.engine.loading import engine
from airgraph.runtime.recording.call_order import CallOrder
from airgraph.runtime.recording.inputs import BufferForm
from airgraph.torch_internals.dispatcher import is_lazy_zero, negated_view
from airgraph.torch_internals.fake_tensors import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from airgraph.torch_internals.storages import StorageWeakRef, storage_id

__all__ = ["Recorder"]

_METADATA_ONLY = {
    *("aten::_assert_tensor_metadata", "aten::_assert_scalar", "aten::sym_constrain_range_for_size"),
    *("aten::sym_size", "aten::sym_stride", "aten::sym_numel", "aten::sym_storage_offset"),
}
_OF_SOMETHING = {torch.ops.aten.max.default, torch.ops.aten.min.default}
_RESIZES = {"aten::resize_", "aten::resize_as_", "aten::_resize_output_"}


class Recorder:
    """One recording in the making. keep_external: whether tensors from outside stay alive with the recording.

    order: of its calls; whoever records says there which stream they are on.
    """

    def __init__(self, *, keep_external: bool) -> None:
        self._engine = engine()
        self._fakes: dict[Any, torch.Tensor] = {}
        # What calls give that write nothing, by traits of operators and the forms of their arguments.
        self._propagated: dict[Any, Any] = {}
        self._traits: dict[torch._ops.OpOverload, _Traits] = {}
        self._calls: list[Call] = []
        self._buffers: list[Buffer] = []
        self._by_storage: dict[int, int] = {}
        self._keep_external = keep_external
        self.kept: list[torch.UntypedStorage] = []
        # Of each buffer that is written, by what its tensors count that; where they may be somebody else's.
        self.written: dict[int, list[Any]] = {}
        self.inputs: list[TensorRef] = []
        self.order = CallOrder()
        self._to_the_end: set[int] = set()

    @functools.cached_property
    def _fake_mode(self) -> FakeTensorMode:
        # Made where it is needed, for it imports Dynamo.
        return FakeTensorMode()

    def input_buffer(self, form: BufferForm) -> torch.Tensor:
        """A tensor without memory for a user input that is copied in before each replay."""
        whole = self._engine.unallocated([form.nbytes // form.dtype.itemsize], [1], form.dtype)
        tensor = whole.as_strided(form.shape, form.stride, form.offset)
        self._add_buffer(tensor, BufferKind.INPUT)
        self.inputs.append(self.ref(tensor))
        return tensor

    def record(
        self, op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any], source: str | Callable[[], str]
    ) -> Any:
        """Record one call; returns what the operator would, as tensors without values.

        source: the user's line, or a function that finds it, called only where it is needed.
        Raises UnsupportedGraph if the operator cannot be captured; errors of the operator itself, such as shapes
        that do not fit, are raised as eager raises them.
        """
        traits = self._traits.get(op)
        if traits is None:
            traits = self._traits[op] = _Traits.of(op)
        kind = traits.kind
        if kind is _AT_CAPTURE:
            return op(*args, **kwargs)
        where = source if isinstance(source, str) else source()
        if kind is _COLLECTIVE:
            return record_collective(self, op, args, where)
        if isinstance(kind, UnsupportedGraph):
            raise UnsupportedGraph(kind.reason, operator=op.name(), source=where)
        tensors: list[torch.Tensor] = []
        tensors.extend(leaves_of(torch.Tensor, (args, *kwargs.values()) if kwargs else args))
        if kind is _RESIZE:
            self._propagate(op, traits, args, kwargs, tensors, where)
            return args[0]
        for tensor in tensors:
            _check_tensor(tensor, op, where)
        result = self._propagate(op, traits, args, kwargs, tensors, where)
        if isinstance(result, (int, float, bool)) and not traits.is_mutable:
            # A question about metadata, such as which attention kernel to take.
            return op(*args, **kwargs)
        return self._add_call(op, traits, args, kwargs, result, tensors, where)

    def record_on(self, op: torch._ops.OpOverload, tensor: torch.Tensor, source: str) -> None:
        """Record a call that does something about one tensor and gives nothing new."""
        self._calls.append(Call(op, (self.ref(tensor),), {}, (), (False,), False, source))
        self.order.call(in_line=keeps_program_order(op))

    def calls_touching(self, tensor: torch.Tensor) -> int:
        """How many recorded calls read or write the buffer that a tensor lies in."""
        buffer = self.buffer_of(tensor)
        return sum(buffer in call.touched() for call in self._calls)

    def calls_writing(self, tensor: torch.Tensor) -> list[int]:
        """The recorded calls that write the buffer that a tensor lies in, by their number."""
        buffer = self.buffer_of(tensor)
        return [n for n, call in enumerate(self._calls) if any(ref.buffer == buffer for ref in call.writes())]

    def finish(self) -> Recording:
        order, tags = self.order.finish(), self.order.tags()
        return Recording(tuple(self._calls), tuple(self._buffers), order, tags, frozenset(self._to_the_end))

    def keep_to_the_end(self, tensor: torch.Tensor) -> None:
        """No other buffer gets the memory of this tensor within the graph."""
        buffer = self.buffer_of(tensor)
        if buffer is not None:
            self._to_the_end.add(buffer)

    def buffer_of(self, tensor: torch.Tensor) -> int | None:
        """The buffer that a tensor lies in, or None if no recorded call touched it."""
        return self._by_storage.get(storage_id(tensor))

    def ref(self, tensor: torch.Tensor) -> TensorRef:
        buffer = self.buffer_of(tensor)
        if buffer is None:
            buffer = self._add_buffer(tensor, BufferKind.EXTERNAL)
        return TensorRef(
            buffer,
            tensor.dtype,
            tuple(tensor.shape),
            tensor.stride(),
            int(tensor.storage_offset()),
            tensor.is_conj(),
            tensor.is_neg(),
        )

    def _add_call(
        self,
        op: torch._ops.OpOverload,
        traits: _Traits,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        result: Any,
        tensors: list[torch.Tensor],
        where: str,
    ) -> Any:
        returns = traits.returns
        values = (result,) if len(returns) == 1 else tuple(result or ())
        handed_out: list[Any] = []
        outs: list[TensorRef] = []
        fresh: list[bool] = []
        for aliased, value in zip(returns, values, strict=True):
            if aliased is not None:
                handed_out.append(_aliased_argument(op, aliased, args, kwargs))
                fresh.append(False)
            elif isinstance(value, torch.Tensor):
                handed_out.append(self._result(value, outs, op, where))
                fresh.append(True)
            elif isinstance(value, (list, tuple)):
                handed_out.append([self._result(item, outs, op, where) for item in value])
                fresh.append(True)
            else:
                handed_out.append(value)
                fresh.append(False)
        lazy = any([tensor.is_conj() or tensor.is_neg() for tensor in tensors])
        self._calls.append(
            Call(
                op,
                mapped(torch.Tensor, self.ref, args),
                {name: mapped(torch.Tensor, self.ref, value) for name, value in kwargs.items()} if kwargs else {},
                tuple(outs),
                tuple(fresh),
                lazy,
                where,
            )
        )
        self.order.call(in_line=traits.in_line)
        if traits.is_mutable and self._keep_external:
            for tensor in leaves_of(torch.Tensor, written_arguments(op, args, kwargs)):
                self._count(tensor)
        if not returns:
            return None
        return handed_out[0] if len(returns) == 1 else tuple(handed_out)

    def _propagate(
        self,
        op: torch._ops.OpOverload,
        traits: _Traits,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        tensors: Sequence[torch.Tensor],
        where: str,
    ) -> Any:
        """What the call gives, by its form. tensors: all among the arguments, in order."""
        written = leaves_of(torch.Tensor, written_arguments(op, args, kwargs)) if traits.is_mutable else []
        # Layers of a model are alike, and a fake call costs more than the rest of a record.
        same = _sameness(tensors) if written else ()
        named = _frozen(tuple(kwargs.items())) if kwargs else ()
        known = (traits, _frozen(args), named, same, torch.get_default_dtype())
        if known in self._propagated:
            return self._propagated[known]
        if op in _OF_SOMETHING and (args or list(kwargs.values()))[0].numel() == 0:
            # The form that writes into a given tensor does not look.
            raise UnsupportedGraph("it has no value for an empty tensor", operator=op.name(), source=where)
        result = result_forms(op, args, kwargs)
        if result is not None:
            self._propagated[known] = result
            return result
        # Not shared with other tensors of the same form: the call may resize them, and sharing looks like overlap.
        stand_ins = {id(tensor): self._new_fake(tensor) for tensor in written}

        def fake(tensor: torch.Tensor) -> torch.Tensor:
            stand_in = stand_ins.get(id(tensor))
            return self._fake(tensor) if stand_in is None else stand_in

        fake_args = mapped(torch.Tensor, fake, args)
        fake_kwargs = {name: mapped(torch.Tensor, fake, value) for name, value in kwargs.items()}
        try:
            with self._fake_mode:
                result = op(*fake_args, **fake_kwargs)
        except DynamicOutputShapeException as error:
            reason = "the shape of its result depends on data"
            raise UnsupportedGraph(reason, operator=op.name(), source=where) from error
        except DataDependentOutputException as error:
            reason = "it reads a tensor's value on the host"
            raise UnsupportedGraph(reason, operator=op.name(), source=where) from error
        except (UnsupportedOperatorException, NotImplementedError) as error:
            reason = "the shape of its result cannot be derived without running it (no fake or meta kernel)"
            raise UnsupportedGraph(reason, operator=op.name(), source=where) from error
        forms = [stand_ins[id(tensor)] for tensor in written]
        if _is_out(op) and any(tensor.shape == form.shape == (0,) for tensor, form in zip(written, forms, strict=True)):
            # Some fake kernels leave an empty out= alone where the real one resizes it.
            forms = self._results_of_functional(op, fake_args, fake_kwargs, where)
        extended = False
        for tensor, form in zip(written, forms, strict=True):
            if tensor.shape != form.shape:
                self._extend(tensor, form, op, where)
                extended = True
        if not extended:
            self._propagated[known] = result
        return result

    def _results_of_functional(
        self, op: torch._ops.OpOverload, args: Any, kwargs: dict[str, Any], where: str
    ) -> list[torch.Tensor]:
        """The results of an out-variant's functional form, on fake arguments."""
        functional = functional_form(op)
        if functional is None:
            raise UnsupportedGraph("the size of an empty out= is not known", operator=op.name(), source=where)
        inputs = [argument for argument in op._schema.arguments if not argument.is_out]
        found: list[torch.Tensor] = []
        with self._fake_mode:
            given = {name: value for name, value in kwargs.items() if name in {a.name for a in inputs}}
            found.extend(leaves_of(torch.Tensor, functional(*args[: len(inputs)], **given)))
        return found

    def _extend(self, tensor: torch.Tensor, like: torch.Tensor, op: torch._ops.OpOverload, where: str) -> None:
        """Give a tensor that has no elements yet `like`'s shape and strides, as eager does for `out=` and `resize_`.

        Raises UnsupportedGraph where memory that earlier calls may use would move.
        """
        storage = tensor.untyped_storage()
        needed = like.untyped_storage().nbytes()
        if needed > storage.nbytes():
            if storage.nbytes() != 0 or not storage.resizable():
                raise UnsupportedGraph("it changes a tensor's memory", operator=op.name(), source=where)
            index = self.buffer_of(tensor)
            if index is not None and self._buffers[index].kind is not BufferKind.EXTERNAL:
                # There is nothing to read in it, and so nothing to resize.
                self._engine.resize_unallocated(tensor, needed)
                self._buffers[index].nbytes = needed
            else:
                storage.resize_(needed)
            if index is not None and self._buffers[index].kind is BufferKind.EXTERNAL:
                self._buffers[index].nbytes, self._buffers[index].address = needed, storage.data_ptr()
        tensor.as_strided_(like.shape, like.stride())

    def _result(self, fake: torch.Tensor, outs: list[TensorRef], op: torch._ops.OpOverload, where: str) -> torch.Tensor:
        if fake.layout is not torch.strided or fake.device.type not in ("cpu", "meta"):
            reason = f"a result has the layout {fake.layout} on {fake.device}"
            raise UnsupportedGraph(reason, operator=op.name(), source=where)
        shape, stride = tuple(fake.shape), fake.stride()
        tensor: torch.Tensor = self._engine.unallocated(shape, stride, fake.dtype)
        buffer = self._add_buffer(tensor, BufferKind.MADE)
        outs.append(TensorRef(buffer, fake.dtype, shape, stride, 0, False, False))
        if self._keep_external:
            self._count(tensor)
        return tensor

    def _count(self, tensor: torch.Tensor) -> None:
        buffer = self.buffer_of(tensor)
        if buffer is not None:
            self.written.setdefault(buffer, []).append(self._engine.WriteCounter(tensor))

    def _add_buffer(self, tensor: torch.Tensor, kind: BufferKind) -> int:
        storage = tensor.untyped_storage()
        address = storage.data_ptr() if kind is BufferKind.EXTERNAL else None
        # The weak reference keeps the storage's identity from being reused.
        self._buffers.append(Buffer(kind, storage.nbytes(), address, StorageWeakRef(storage)))
        if kind is BufferKind.EXTERNAL and self._keep_external:
            self.kept.append(storage)
        index = len(self._buffers) - 1
        self._by_storage[storage_id(storage)] = index
        return index

    def _new_fake(self, tensor: torch.Tensor) -> torch.Tensor:
        with self._fake_mode:
            fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
            if tensor.is_conj():
                fake = torch.conj(fake)
            return negated_view(fake) if tensor.is_neg() else fake

    def _fake(self, tensor: torch.Tensor) -> torch.Tensor:
        key = _form(tensor)
        fake = self._fakes.get(key)
        if fake is None:
            fake = self._fakes[key] = self._new_fake(tensor)
        return fake


_COMPUTE = "compute"
_AT_CAPTURE = "at capture"
_RESIZE = "resize"
_COLLECTIVE = "collective"


@dataclass(frozen=True, slots=True, eq=False)
class _Traits:
    """What a recording asks of an operator at each call of it.

    kind: what becomes of a call. in_line: see `CallOrder.call`. returns: of each result, position and name of the
    argument that it is; None: it is new.
    """

    kind: str | UnsupportedGraph
    is_mutable: bool
    in_line: bool
    returns: tuple[tuple[int, str] | None, ...]

    @classmethod
    def of(cls, op: torch._ops.OpOverload) -> _Traits:
        schema = op._schema
        kind = _COLLECTIVE if is_collective(op) else _kind(op)
        returns = tuple(_aliased(op, each.alias_info) for each in schema.returns)
        return cls(kind, schema.is_mutable, keeps_program_order(op), returns)


@functools.cache
def _kind(op: torch._ops.OpOverload) -> str | UnsupportedGraph:
    """Whether a call is recorded, only concerns metadata and memory at capture, or cannot be captured."""
    name = op._schema.name
    if name in _RESIZES:
        return _RESIZE
    if name == "aten::set_":
        return UnsupportedGraph("it changes a tensor's memory")
    if name in _METADATA_ONLY or is_view_operator(op) or torch.Tag.inplace_view in op.tags:
        return _AT_CAPTURE
    obstacle = capture_obstacle(op)
    return UnsupportedGraph(obstacle) if obstacle else _COMPUTE


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg()


def _frozen(value: Any) -> Any:
    """An argument as what results depend on for their form: of tensors their own, of others type and value."""
    if isinstance(value, torch.Tensor):
        return _form(value)
    if isinstance(value, (list, tuple)):
        return tuple(map(_frozen, value))
    kind = type(value)
    return kind, id(value) if kind.__hash__ is None else value


def _sameness(tensors: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Which of the tensors are one: of each, the place of the first that it is."""
    ids = list(map(id, tensors))
    return tuple(map(ids.index, ids))


def _is_out(op: torch._ops.OpOverload) -> bool:
    return any(argument.is_out for argument in op._schema.arguments)


def _check_tensor(tensor: torch.Tensor, op: torch._ops.OpOverload, where: str) -> None:
    if not tensor.is_cpu:
        reason = f"a tensor lies on {tensor.device}, the graph on cpu"
    elif tensor.layout is not torch.strided or tensor.is_quantized:
        reason = f"a tensor has the layout {tensor.layout}"
    elif type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        reason = f"a tensor is of the subclass {type(tensor).__name__}"
    elif is_lazy_zero(tensor):
        reason = "a tensor is a lazy zero"
    else:
        return
    raise UnsupportedGraph(reason, operator=op.name(), source=where)


_NO_ARGUMENT = (-1, "")


def _aliased(op: torch._ops.OpOverload, alias: Any) -> tuple[int, str] | None:
    """Position and name of the argument that a result is, by its schema; _NO_ARGUMENT where it names none."""
    if alias is None:
        return None
    for position, argument in enumerate(op._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.before_set == alias.before_set:
            return position, argument.name
    return _NO_ARGUMENT


def _aliased_argument(
    op: torch._ops.OpOverload, aliased: tuple[int, str], args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    if aliased is _NO_ARGUMENT:
        raise UnsupportedGraph("its schema aliases no argument", operator=op.name())
    position, name = aliased
    return args[position] if position < len(args) else kwargs[name]
