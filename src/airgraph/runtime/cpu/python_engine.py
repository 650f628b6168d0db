"""Replays tapes in Python, with the names of the native engine: where there is no compiler."""

from __future__ import annotations

import ctypes
import enum
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch
from torch.autograd import forward_ad

from airgraph.memory.turn import Turn
from airgraph.program.inputs import span_nbytes

__all__ = [
    "DeviceLaunch",
    "DeviceNeighbours",
    "HandGraph",
    "Launch",
    "LiveOutputs",
    "MOVES_MEMORY",
    "Neighbours",
    "ReplayFailure",
    "Strides",
    "Tape",
    "ThreadState",
    "Turn",
    "allocate",
    "bytes_at",
    "first_overlap",
    "is_foreign",
    "settings",
    "share_storage",
    "unallocated",
    "view_at",
    "whole",
]


# Whether tensors that the tape holds can be pointed at other memory: they cannot from Python.
MOVES_MEMORY = False


class Neighbours:
    """Outputs are copies: nothing to know."""

    def give_away_held(self) -> None:
        """Nothing to do."""


DeviceNeighbours = Neighbours


class ReplayFailure(Exception):
    """args: index of the call on the tape, message."""


class LiveOutputs:
    preserve, warn, error, overwrite = range(4)


class Strides(enum.Enum):
    """See `csrc/engine/inputs.h`."""

    exact = enum.auto()
    elements = enum.auto()
    order = enum.auto()


def settings() -> tuple[Any, ...]:
    """What kernels take from the settings of the process."""
    backends = torch.backends
    return (
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch._C._get_deterministic_fill_uninitialized_memory(),
        torch._C._get_mkldnn_enabled(),
        backends.cuda.flash_sdp_enabled(),
        backends.cuda.mem_efficient_sdp_enabled(),
        backends.cuda.math_sdp_enabled(),
        backends.cudnn.allow_tf32,
        backends.cudnn.deterministic,
        _matmul_precision(),
    )


def _matmul_precision() -> str:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        # It refuses to answer once a precision has been set for a single backend.
        return "several"


def is_foreign(tensor: torch.Tensor) -> bool:
    """Whether a tensor is something else, or more, than elements in memory of its device."""
    keys = torch._C._dispatch_keys(tensor)
    return any(keys.has(getattr(torch._C.DispatchKey, name)) for name in ("Python", "Functionalize", "ZeroTensor")) or (
        torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        or tensor.layout is not torch.strided
        or (forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None)
    )


def share_storage(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch._C._is_alias_of(a, b)  # type: ignore[attr-defined]


def first_overlap(args: list[Any], written: list[int]) -> tuple[int, int] | None:
    """Of the arguments at `written` the first whose memory lies among another's, and that one."""
    spans = {i: _span(arg) for i, arg in enumerate(args) if isinstance(arg, torch.Tensor) and not is_foreign(arg)}
    for target in written:
        for other, (begin, end) in spans.items():
            if target in spans and other != target and begin < spans[target][1] and spans[target][0] < end:
                return target, other
    return None


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    begin = tensor.data_ptr() if tensor.numel() else 0
    return begin, begin + span_nbytes(tensor)


def unallocated(sizes: list[int], strides: list[int], dtype: torch.dtype) -> torch.Tensor:
    # Without the native engine it has memory of its own from the start.
    return torch.empty_strided(sizes, strides, dtype=dtype, device="cpu")


def resize_unallocated(tensor: torch.Tensor, nbytes: int) -> None:
    tensor.untyped_storage().resize_(nbytes)


def allocate(tensor: torch.Tensor) -> None:
    """Nothing to do: see `unallocated`."""


def whole(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)


def bytes_at(address: int, nbytes: int) -> torch.Tensor:
    if nbytes == 0 or address == 0:
        return torch.empty(nbytes, dtype=torch.uint8, device="cpu")
    return torch.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype=torch.uint8)


def view_at(
    data: torch.Tensor,
    dtype: torch.dtype,
    sizes: list[int],
    strides: list[int],
    offset: int,
    conj: bool,
    neg: bool,
) -> torch.Tensor:
    tensor = torch.empty(0, dtype=dtype, device="cpu").set_(data.untyped_storage(), offset, sizes, strides)
    if conj:
        tensor = torch.conj(tensor)
    return torch._neg_view(tensor) if neg else tensor


def has_kernel(name: str, overload: str) -> bool:
    """Operators are called as they are."""
    return False


class Tape:
    """Calls of ATen operators with arguments over fixed addresses."""

    def __init__(self) -> None:
        self._calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], list[torch.Tensor | None], list[bool]]] = []

    def append(
        self,
        name: str,
        overload: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outs: list[torch.Tensor],
        fresh: list[bool],
        needed: list[bool],
        out_overload: str | None,
        redispatch: bool,
    ) -> str:
        namespace, _, short = name.partition("::")
        op = getattr(getattr(getattr(torch.ops, namespace), short), overload or "default")
        slots = [out if read else None for out, read in zip(outs, needed, strict=True)]
        self._calls.append((op, args, kwargs, slots, fresh))
        return "python"

    def __len__(self) -> int:
        return len(self._calls)

    def replay(self) -> None:
        # What was captured in inference mode may be replayed outside, and the other way round; autocast was captured.
        with torch.inference_mode(), torch._C._DisableAutocast():
            for index, (op, args, kwargs, outs, fresh) in enumerate(self._calls):
                try:
                    _fill(outs, op(*args, **kwargs), fresh)
                except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
                    raise ReplayFailure(index, str(error)) from error


def _fill(outs: list[torch.Tensor | None], result: Any, fresh: list[bool]) -> None:
    slots = iter(outs)
    results = (result,) if len(fresh) == 1 else result
    for is_fresh, value in zip(fresh, results or (), strict=False):
        if is_fresh:
            for tensor in value if isinstance(value, (list, tuple)) else (value,):
                slot = next(slots)
                if slot is not None and tensor is not None:
                    slot.copy_(tensor)


@dataclass(frozen=True, slots=True)
class _Form:
    """All that a capture took for granted of an argument but its address and its values."""

    like: tuple[Any, ...]
    strides: tuple[Any, ...]
    comparison: Strides
    with_offset: bool
    with_storage: bool

    @classmethod
    def of(cls, tensor: torch.Tensor, comparison: Strides, with_offset: bool, with_storage: bool) -> _Form:
        like: tuple[Any, ...] = (tensor.shape, tensor.dtype, tensor.device, tensor.is_conj(), tensor.is_neg())
        if with_offset or with_storage:
            like += (tensor.storage_offset(),)
        if with_storage:
            like += (tensor.untyped_storage().nbytes(),)
        strides = tensor.stride()
        if comparison is Strides.elements:
            strides = tuple(s for size, s in zip(tensor.shape, strides, strict=True) if size > 1)
        elif comparison is Strides.order:
            strides = torch.empty_like(tensor, device="meta").stride()
        return cls(like, strides, comparison, with_offset, with_storage)

    def is_of(self, tensor: torch.Tensor) -> bool:
        return _Form.of(tensor, self.comparison, self.with_offset, self.with_storage) == self


class _Inputs:
    def __init__(self, turn: Turn, name: str) -> None:
        self._turn = turn
        self._name = name
        self._settings = settings()
        self._placed: list[tuple[int, int, bool, _Form]] = []
        self._copied: list[tuple[int, torch.Tensor, _Form]] = []
        self._kept: list[tuple[int, torch.Tensor, int]] = []
        self._written: list[int] = []

    def add_written_input(self, index: int, at: torch.Tensor) -> None:
        self._written.append(index)

    def add_placed_input(self, index: int, like: torch.Tensor, is_formed: bool, *form: Any) -> None:
        self._placed.append((index, like.data_ptr(), is_formed, _Form.of(like, *form)))

    def add_copied_input(self, index: int, buffer: torch.Tensor, like: torch.Tensor, *form: Any) -> None:
        # How its memory is best copied concerns the native engine only.
        self._copied.append((index, buffer, _Form.of(like, *form[:3])))

    def add_kept_input(self, index: int, theirs: torch.Tensor, *form: Any) -> None:
        self._copied.append((index, theirs, _Form.of(theirs, *form)))
        self._kept.append((index, theirs, theirs.data_ptr()))

    def captured_address(self, index: int) -> int:
        expected = {each: address for each, address, *_ in self._placed}
        expected.update((each, address) for each, _, address in self._kept)
        return expected[index]

    def run(self, args: list[Any], has_turn: bool = False) -> list[torch.Tensor] | tuple[str, int]:
        if has_turn:
            return self._run(args)
        with self._turn.having(self._name):
            return self._run(args)

    def _run(self, args: list[Any]) -> list[torch.Tensor] | tuple[str, int]:
        problem = self._problem(args)
        if problem is not None:
            return problem
        self._copy_inputs(args)
        return self._results()

    def _results(self) -> list[torch.Tensor]:
        """Replay, and copy what was made."""
        raise NotImplementedError

    def _problem(self, args: list[Any]) -> tuple[str, int] | None:
        if settings() != self._settings:
            return "settings", 0
        for index in (*(each[0] for each in self._placed), *(each[0] for each in self._copied)):
            if is_foreign(args[index]):
                return "foreign", index
        for index, _, is_formed, form in self._placed:
            if is_formed and not form.is_of(args[index]):
                return "mismatched", index
        for index, _, form in self._copied:
            if not form.is_of(args[index]):
                return "mismatched", index
        for index, address, *_ in self._placed:
            if args[index].data_ptr() != address:
                return "moved", index
        for index, theirs, address in self._kept:
            if theirs.data_ptr() != address:
                return "moved", index
        for index, theirs, _ in self._kept:
            # Kept no longer where it is part of an argument which is used in place.
            if args[index].data_ptr() != theirs.data_ptr() and first_overlap(
                [theirs, *(args[each[0]] for each in self._placed)], [0]
            ):
                return "moved", index
        overlap = first_overlap(args, self._written) if self._written else None
        return None if overlap is None else ("overlapping", overlap[1])

    def _copy_inputs(self, args: list[Any]) -> None:
        torch.autograd.graph.increment_version([args[i] for i in self._written if not args[i].is_inference()])
        with torch.inference_mode():
            # All sources before the first copy: the user may have swapped tensors that are copied into.
            sources = [args[index].clone() if self._kept else args[index] for index, _, _ in self._copied]
            for (_, buffer, _), source in zip(self._copied, sources, strict=True):
                if torch._debug_has_internal_overlap(buffer) == 0:
                    buffer.copy_(source, non_blocking=True)
                else:
                    _memory_of(buffer).copy_(_memory_of(source), non_blocking=True)


def _memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """From the first element to the last, as one row."""
    return tensor.as_strided((span_nbytes(tensor) // tensor.itemsize,), (1,))


class DeviceLaunch(_Inputs):
    """As the native one, but outputs are copies, so none is ever overwritten."""

    def __init__(
        self, replay: Callable[[], None], device: str, policy: int, neighbours: Neighbours, turn: Turn, name: str
    ) -> None:
        super().__init__(turn, name)
        self._replay = replay
        self._slots: list[torch.Tensor] = []

    def add_output(self, slot: torch.Tensor) -> None:
        self._slots.append(slot)

    def held_outputs(self) -> int:
        return 0

    def _results(self) -> list[torch.Tensor]:
        self._replay()
        return [slot.clone() for slot in self._slots]

    def close(self) -> None:
        """Nothing to do: see the class."""

    def blank(self) -> list[torch.Tensor]:
        return [torch.zeros_like(slot) for slot in self._slots]


class Launch(_Inputs):
    """As the native one, but outputs are copies, so none is ever overwritten."""

    def __init__(self, tape: Tape, policy: int, neighbours: Neighbours, turn: Turn, name: str, follows: bool) -> None:
        super().__init__(turn, name)
        self._tape = tape
        self._storages: list[torch.Tensor] = []
        self._outputs: list[tuple[Any, ...]] = []

    def add_output_storage(self, slot: torch.Tensor) -> int:
        self._storages.append(slot)
        return len(self._storages) - 1

    def add_output(self, storage: int, *spec: Any) -> None:
        self._outputs.append((storage, *spec))

    def held_outputs(self) -> int:
        return 0

    def output_nbytes(self) -> int:
        return sum(slot.untyped_storage().nbytes() for slot in self._storages)

    def _results(self) -> list[torch.Tensor]:
        self.replay()
        copies = [slot.clone() for slot in self._storages]
        return [view_at(copies[storage], *spec) for storage, *spec in self._outputs]

    def blank(self) -> list[torch.Tensor]:
        zeros = [torch.zeros_like(slot) for slot in self._storages]
        return [view_at(zeros[storage], *spec) for storage, *spec in self._outputs]

    def replay(self) -> None:
        self._tape.replay()


class ThreadState:
    """Autograd and dispatch modes of the thread, as far as Python can put them back."""

    def __init__(self) -> None:
        self._grad = torch.is_grad_enabled()
        self._modes = torch._C._len_torch_dispatch_stack()

    def restore(self) -> None:
        torch.set_grad_enabled(self._grad)
        while torch._C._len_torch_dispatch_stack() > self._modes:
            torch.utils._python_dispatch._pop_mode()


class HandGraph:
    """As the native one."""

    def __init__(self, tape: Tape, turn: Turn) -> None:
        self._tape = tape
        self._turn = turn
        self._settings = settings()
        self._memory: list[tuple[torch.UntypedStorage, int, int]] = []

    def add_memory(self, whole: torch.Tensor) -> None:
        storage = whole.untyped_storage()
        self._memory.append((storage, storage.data_ptr(), storage.nbytes()))

    def replay(self) -> tuple[str, int] | None:
        with self._turn.having("replay of a CPUGraph"):
            for index, (storage, address, nbytes) in enumerate(self._memory):
                if storage.data_ptr() != address or storage.nbytes() != nbytes:
                    return "lost", index
            if settings() != self._settings:
                return "settings", 0
            self._tape.replay()
        return None


class Block:
    """As the native one, but for an exception of a signal handler that keeps `_leave` from beginning."""

    def __enter__(self) -> Any:
        return self._recovering(self._enter)

    def __exit__(self, *raised: Any) -> Any:
        return self._recovering(self._leave, *raised)

    def _recovering(self, call: Callable[..., Any], *args: Any) -> Any:
        try:
            return call(*args)
        except BaseException:
            self._recover()
            raise

    def _enter(self) -> Any:
        raise NotImplementedError

    def _leave(self, *raised: Any) -> Any:
        raise NotImplementedError

    def _recover(self) -> None:
        raise NotImplementedError


_ABSENT = object()


class Observer:
    """See `csrc/observer.h`."""

    def __init__(
        self,
        watched: list[tuple[CodeType, Callable[[Any], None]]],
        passed_over: list[CodeType],
        built_in: list[Any],
        on_built_in: Callable[[Any, Any], None],
    ) -> None:
        self._watched = {id(code): (code, function) for code, function in watched}
        self._passed_over = {id(code): code for code in passed_over}
        self._built_in = {id(function): function for function in built_in}
        self._on_built_in = on_built_in
        self._seen: dict[int, tuple[CodeType, dict[str, Any]]] = {}
        self._outermost: FrameType | None = None
        self._before: Any = None

    def __enter__(self) -> None:
        self._before = sys.getprofile()
        self._outermost = None
        sys.setprofile(self._on_event)

    def __exit__(self, *raised: object) -> None:
        sys.setprofile(self._before)
        self._outermost = None

    def seen(self) -> list[tuple[CodeType, dict[str, Any]]]:
        return list(self._seen.values())

    def _on_event(self, frame: FrameType, what: str, argument: Any) -> None:
        if self._outermost is None:
            if what == "call":
                self._note(frame)
            elif what == "c_call" and id(argument) in self._built_in:
                self._on_built_in(frame, argument)
        elif what == "return" and frame is self._outermost:
            self._outermost = None
        if self._before is not None:
            self._before(frame, what, argument)

    def _note(self, frame: FrameType) -> None:
        code = frame.f_code
        if id(code) in self._passed_over or code.co_name == "__del__":
            self._outermost = frame
            return
        self._seen.setdefault(id(code), (code, frame.f_globals))
        if id(code) in self._watched:
            self._watched[id(code)][1](frame)


class Settled:
    """See `csrc/settled.h`."""

    def __init__(self, devices: dict[str, Any]) -> None:
        self._devices = devices
        self._state: tuple[Any, ...] = ()

    def settle(self) -> None:
        self._state = self._now()

    def unchanged(self) -> bool:
        modes = torch._C._len_torch_dispatch_stack()
        return modes == 0 and torch._C._functorch.peek_interpreter_stack() is None and self._state == self._now()

    def _now(self) -> tuple[Any, ...]:
        devices = ("cpu", "cuda", "privateuseone")
        return (
            torch.get_default_dtype(),
            torch.is_autocast_cache_enabled(),
            *((torch.is_autocast_enabled(each), torch.get_autocast_dtype(each)) for each in devices),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch._C._get_cublas_allow_tf32(),
            torch._C._get_cublas_allow_fp16_reduced_precision_reduction(),
            torch._C._get_cublas_allow_bf16_reduced_precision_reduction(),
            torch._C._len_torch_function_stack(),
            torch._C._is_torch_function_enabled(),
            self._devices.get("CURRENT_DEVICE"),
        )


class Gate:
    """See `csrc/cache_bindings.cpp`."""

    def __init__(self, watch: Any, settled: Any, reader: Any) -> None:
        self._watch, self._settled, self._reader = watch, settled, reader

    def read(self, values: tuple[Any, ...]) -> Any:
        if self._watch.changed() or not self._settled.unchanged():
            return False
        return self._reader.read(values)


class SetBack:
    """See `csrc/set_back.h`."""

    def __init__(self) -> None:
        self._kept: list[tuple[Any, str, Any]] = []

    def keep(self, owner: Any, name: str) -> None:
        self._kept.append((owner, name, getattr(owner, name, _ABSENT)))

    def __enter__(self) -> SetBack:
        return self

    def __exit__(self, *raised: object) -> None:
        kept, self._kept = self._kept, []
        for owner, name, value in reversed(kept):
            if value is not _ABSENT:
                object.__setattr__(owner, name, value)
            elif hasattr(owner, name):
                object.__delattr__(owner, name)


class CallReader:
    """See `csrc/call_reader.h`."""

    def __init__(self, parameters: int, instructions: list[tuple[Any, ...]], arguments: list[Any]) -> None:
        self._parameters = parameters
        self._instructions = instructions
        self._arguments = arguments

    def read(self, values: tuple[Any, ...]) -> list[Any] | None:
        slots, made = list(values), self._arguments.copy()
        if len(slots) != self._parameters:
            raise TypeError("another number of arguments")
        try:
            if all(self._run(name, operands, slots, made) for name, *operands in self._instructions):
                return made
        except Exception:
            # Missing, or raised by code of the user's on the way.
            pass
        return None

    def _run(self, name: str, operands: list[Any], slots: list[Any], made: list[Any]) -> bool:
        if name == "kept":
            return _has_traits(made[operands[0]], *operands[1:])
        if name == "object":
            slots.append(operands[0])
            return True
        value, rest = slots[operands[0]], operands[1:]
        if name in ("attribute", "item", "type"):
            slots.append(type(value) if name == "type" else _step(name, value, rest[0]))
            return True
        if name in ("number", "float", "tensor", "size", "stride", "offset"):
            return _take(name, value, rest, made)
        return _holds(name, value, slots[rest[0]] if name in ("same", "apart") else rest[0])


def _step(name: str, owner: Any, key: Any) -> Any:
    if name == "attribute":
        return getattr(owner, key)
    return dict.__getitem__(owner, key) if isinstance(owner, dict) else owner[key]


def _take(name: str, value: Any, rest: list[Any], made: list[Any]) -> bool:
    match name:
        case "number":
            made[rest[0]] = value
            return type(value) is int
        case "float":
            made[rest[0]] = torch.tensor(value, dtype=torch.float64)
            return type(value) is float and value == value
        case "tensor":
            made[rest[0]] = value
            return _has_traits(value, *rest[1:])
        case "offset":
            made[rest[0]] = value.storage_offset()
        case _:
            made[rest[1]] = getattr(value, name)()[rest[0]]
    return True


def _holds(name: str, value: Any, expected: Any) -> bool:
    match name:
        case "is" | "same":
            return value is expected
        case "apart":
            return value is not expected
        case "among":
            return not any(value is other for other in expected)
        case "of_class":
            return type(value) is expected
        case "equals":
            return type(value) is type(expected) and bool(value == expected)
        case "length":
            return bool(len(value) == expected)
        case "has":
            return hasattr(value, expected)
        case "lacks":
            return not hasattr(value, expected)
        case "inherits":
            return expected not in value.__dict__
        case "holds":
            return bool(expected(value))
    raise ValueError(f"no such instruction: {name}")


def _has_traits(value: Any, class_: Any, requires_grad: bool, is_leaf: bool, keys: int) -> bool:
    return (
        bool(type(value) is class_)
        and value.requires_grad == requires_grad
        and torch._C._dispatch_keys(value).raw_repr() == keys
        and (not requires_grad or value.is_leaf == is_leaf)
    )


def _item(container: Any, key: Any) -> Any:
    """Of a dict the entry, whatever its class makes of it."""
    return dict.__getitem__(container, key) if isinstance(container, dict) else container[key]


class Watch:
    """See `csrc/watch.h`."""

    def __init__(self, *watched: tuple[tuple[Any, ...], ...]) -> None:
        self._items, self._lengths, self._absent, self._keys = watched[:4]
        self._attributes, self._types, self._class_items, self._class_absent = watched[4:8]
        functions: Sequence[Any] = watched[8] if len(watched) > 8 else ()
        self._functions = [(each, each.__code__, each.__defaults__, each.__kwdefaults__) for each in functions]
        self._classes = [is_as_it_was for _, is_as_it_was in (watched[9] if len(watched) > 9 else ())]
        self._cells: Sequence[Any] = watched[10] if len(watched) > 10 else ()

    def changed(self) -> bool:
        try:
            return (
                any(_item(container, key) is not value for container, key, value in self._items)
                or any(len(container) != length for container, length in self._lengths)
                or any(name in container for container, name in self._absent)
                or any(tuple(container) != expected for container, expected in self._keys)
                or any(getattr(owner, name) is not value for owner, name, value in self._attributes)
                or any(cell.cell_contents is not value for cell, value in self._cells)
                or any(type(owner) is not expected for owner, expected in self._types)
                or any(vars(class_)[name] is not value for class_, name, value in self._class_items)
                or any(hasattr(class_, name) for class_, name in self._class_absent)
                or any(
                    each.__code__ is not code or each.__defaults__ is not values or each.__kwdefaults__ is not named
                    for each, code, values, named in self._functions
                )
                or not all(is_as_it_was() for is_as_it_was in self._classes)
            )
        except (LookupError, AttributeError, TypeError, ValueError):
            return True
