"""Tapes and their replay, with the names of the native engine."""

from __future__ import annotations

import enum
import itertools
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from airgraph.memory.replay_lock import ReplayLock
from airgraph.program.inputs import span_nbytes
from airgraph.runtime.engine.python_engine.values import first_overlap, is_foreign, settings, view_at
from airgraph.runtime.problem import InputProblem, ProblemKind
from airgraph.torch_internals.dispatcher import overlaps_itself, without_autocast
from airgraph.torch_internals.modes import mode_counts, take_off_modes, without_modes


class Neighbours:
    """Outputs are copies: nothing to know of them."""


def tells_captures_quickly(device: str) -> bool:
    """Not without the device's runtime."""
    return False


class ReplayFailure(Exception):
    """args: index of the call on the tape, message."""


class LiveOutputs:
    preserve, warn, error, overwrite = range(4)


class Strides(enum.Enum):
    """See `csrc/engine/inputs.h`."""

    exact = enum.auto()
    elements = enum.auto()
    order = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """See `csrc/engine/tape.h`."""

    name: str
    overload: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outs: list[torch.Tensor]
    fresh: Sequence[bool]
    needed: list[bool]
    out_overload: str | None
    redispatch: bool
    exact: bool
    packed: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """See `csrc/engine/schedule.h`."""

    stream: int
    calls: list[int]
    waits: list[tuple[int, int]]
    on_caller: bool


class Tape:
    """Calls of ATen operators with arguments over fixed addresses."""

    def __init__(self) -> None:
        self._calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], list[torch.Tensor | None], Sequence[bool]]] = []

    def append(self, call: RecordedCall) -> str:
        namespace, _, short = call.name.partition("::")
        op = getattr(getattr(getattr(torch.ops, namespace), short), call.overload or "default")
        slots = [out if read else None for out, read in zip(call.outs, call.needed, strict=True)]
        self._calls.append((op, call.args, call.kwargs, slots, call.fresh))
        return "python"

    def run_beside(self, segments: list[Segment], threads: int, is_worth_waking: bool) -> None:
        """Nothing: the order of the tape is one that all streams allow."""

    def __len__(self) -> int:
        return len(self._calls)

    def timeline(self, rounds: int) -> list[tuple[int, int, int]]:
        ends: list[int] = []
        for _ in range(rounds):
            ends[:] = [time.monotonic_ns()]
            self.replay(lambda: ends.append(time.monotonic_ns()))
        return [(begin, end, 0) for begin, end in itertools.pairwise(ends)]

    def replay(self, after_each: Callable[[], object] = lambda: None) -> None:
        # What was captured in inference mode may be replayed outside, and the other way round; autocast was captured.
        with torch.inference_mode(), without_autocast(), without_modes():
            for index, (op, args, kwargs, outs, fresh) in enumerate(self._calls):
                try:
                    _fill(outs, op(*args, **kwargs), fresh)
                    after_each()
                except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
                    raise ReplayFailure(index, str(error)) from error


def _fill(outs: list[torch.Tensor | None], result: Any, fresh: Sequence[bool]) -> None:
    slots = iter(outs)
    results = (result,) if len(fresh) == 1 else result
    for is_fresh, value in zip(fresh, results or (), strict=False):
        if is_fresh:
            for tensor in value if isinstance(value, (list, tuple)) else (value,):
                slot = next(slots)
                if slot is None or tensor is None:
                    continue
                if overlaps_itself(slot) and slot.stride() == tensor.stride():
                    _memory_of(slot).copy_(_memory_of(tensor))
                else:
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
    def of(cls, tensor: torch.Tensor, *, strides: Strides, with_offset: bool, with_storage: bool) -> _Form:
        like: tuple[Any, ...] = (tensor.shape, tensor.dtype, tensor.device, tensor.is_conj(), tensor.is_neg())
        if with_offset or with_storage:
            like += (tensor.storage_offset(),)
        if with_storage:
            like += (tensor.untyped_storage().nbytes(),)
        compared = tensor.stride()
        if strides is Strides.elements:
            compared = tuple(s for size, s in zip(tensor.shape, compared, strict=True) if size > 1)
        elif strides is Strides.order:
            compared = torch.empty_like(tensor, device="meta").stride()
        return cls(like, compared, strides, with_offset, with_storage)

    def is_of(self, tensor: torch.Tensor) -> bool:
        agreed = {"with_offset": self.with_offset, "with_storage": self.with_storage}
        return _Form.of(tensor, strides=self.comparison, **agreed) == self


class _Inputs:
    def __init__(self, replay_lock: ReplayLock, name: str) -> None:
        self._replay_lock = replay_lock
        self._name = name
        self._settings = settings()
        self._placed: list[tuple[int, int, bool, _Form]] = []
        self._copied: list[tuple[int, torch.Tensor, _Form]] = []
        self._kept: list[tuple[int, torch.Tensor, int]] = []
        self._written: list[int] = []

    def add_written_input(self, index: int, at: torch.Tensor) -> None:
        self._written.append(index)

    def add_placed_input(self, *, index: int, like: torch.Tensor, is_formed: bool, **form: Any) -> None:
        self._placed.append((index, like.data_ptr(), is_formed, _Form.of(like, **form)))

    def add_copied_input(
        self, *, index: int, buffer: torch.Tensor, like: torch.Tensor, block_begin: int, block_nbytes: int, **form: Any
    ) -> None:
        # How its memory is best copied, as one block or not, concerns the native engine only.
        self._copied.append((index, buffer, _Form.of(like, **form)))

    def add_kept_input(self, *, index: int, theirs: torch.Tensor, **form: Any) -> None:
        self._copied.append((index, theirs, _Form.of(theirs, **form)))
        self._kept.append((index, theirs, theirs.data_ptr()))

    def captured_address(self, index: int) -> int:
        expected = {each: address for each, address, *_ in self._placed}
        expected.update((each, address) for each, _, address in self._kept)
        return expected[index]

    def run(self, args: list[Any], is_locked: bool = False) -> list[torch.Tensor] | InputProblem:
        if is_locked:
            return self._run(args)
        with self._replay_lock.holding(self._name):
            return self._run(args)

    def _run(self, args: list[Any]) -> list[torch.Tensor] | InputProblem:
        problem = self._problem(args)
        if problem is not None:
            return problem
        self._copy_inputs(args)
        return self._results()

    def _results(self) -> list[torch.Tensor]:
        """Replay, and copy what was made."""
        raise NotImplementedError

    def _problem(self, args: list[Any]) -> InputProblem | None:
        if settings() != self._settings:
            return InputProblem(ProblemKind.SETTINGS)
        for index in (*(each[0] for each in self._placed), *(each[0] for each in self._copied)):
            if is_foreign(args[index]):
                return InputProblem(ProblemKind.FOREIGN, index)
        for index, _, is_formed, form in self._placed:
            if is_formed and not form.is_of(args[index]):
                return InputProblem(ProblemKind.MISMATCHED, index)
        for index, _, form in self._copied:
            if not form.is_of(args[index]):
                return InputProblem(ProblemKind.MISMATCHED, index)
        if self._written and not torch.is_inference_mode_enabled():
            for index in self._written:
                if args[index].is_inference():
                    return InputProblem(ProblemKind.MISMATCHED, index)
        for index, address, *_ in self._placed:
            if args[index].data_ptr() != address:
                return InputProblem(ProblemKind.MOVED, index)
        for index, theirs, address in self._kept:
            if theirs.data_ptr() != address:
                return InputProblem(ProblemKind.MOVED, index)
        for index, theirs, _ in self._kept:
            # Kept no longer where it is part of an argument which is used in place.
            if args[index].data_ptr() != theirs.data_ptr() and first_overlap(
                [theirs, *(args[each[0]] for each in self._placed)], [0]
            ):
                return InputProblem(ProblemKind.MOVED, index)
        overlap = first_overlap(args, self._written) if self._written else None
        return None if overlap is None else InputProblem(ProblemKind.OVERLAPPING, overlap[1])

    def _copy_inputs(self, args: list[Any]) -> None:
        torch.autograd.graph.increment_version([args[i] for i in self._written if not args[i].is_inference()])
        with torch.inference_mode():
            # All sources before the first copy: the user may have swapped tensors that are copied into.
            sources = [args[index].clone() if self._kept else args[index] for index, _, _ in self._copied]
            for (_, buffer, _), source in zip(self._copied, sources, strict=True):
                if not overlaps_itself(buffer):
                    buffer.copy_(source, non_blocking=True)
                else:
                    _memory_of(buffer).copy_(_memory_of(source), non_blocking=True)


def _memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """From the first element to the last, as one row."""
    return tensor.as_strided((span_nbytes(tensor) // tensor.itemsize,), (1,))


class Launch(_Inputs):
    """As the native one, but outputs are copies, so none is ever overwritten."""

    def __init__(
        self, *, tape: Tape, policy: int, neighbours: Neighbours, replay_lock: ReplayLock, name: str, follows: bool
    ) -> None:
        super().__init__(replay_lock, name)
        self._tape = tape
        self._storages: list[torch.Tensor] = []
        self._outputs: list[tuple[int, dict[str, Any]]] = []

    def add_output_storage(self, slot: torch.Tensor) -> int:
        self._storages.append(slot)
        return len(self._storages) - 1

    def add_output(self, *, storage: int, **spec: Any) -> None:
        self._outputs.append((storage, spec))

    def held_outputs(self) -> int:
        return 0

    def _results(self) -> list[torch.Tensor]:
        self.replay()
        copies = [slot.clone() for slot in self._storages]
        return [view_at(copies[storage], **spec) for storage, spec in self._outputs]

    def blank(self) -> list[torch.Tensor]:
        zeros = [torch.zeros_like(slot) for slot in self._storages]
        return [view_at(zeros[storage], **spec) for storage, spec in self._outputs]

    def replay(self) -> None:
        self._tape.replay()


class UsualCall:
    """As the native one."""

    def __init__(
        self,
        *,
        launch: Launch,
        numbers: list[tuple[int, Any]],
        tally: list[int],
        with_care: set[int],
        is_capturing: Callable[[], bool] | None,
        settings: Callable[[], Any] | None,
        captured_settings: Any,
        finish: Callable[[list[Any], Sequence[Any]], list[Any]] | None,
    ) -> None:
        self._launch, self._numbers, self._tally, self._with_care = launch, numbers, tally, with_care
        self._is_capturing, self._finish = is_capturing, finish
        self._settings, self._captured_settings = settings, captured_settings

    def __call__(self, args: Sequence[Any]) -> list[Any] | None:
        if self._with_care or (self._is_capturing is not None and self._is_capturing()):
            return None
        if any(type(args[index]) is not type(value) or args[index] != value for index, value in self._numbers):
            return None
        if self._settings is not None and self._settings() != self._captured_settings:
            return None
        made = self._launch.run(list(args))
        if isinstance(made, InputProblem):
            return None
        self._tally[0] += 1
        return made if self._finish is None else self._finish(made, args)


class ThreadState:
    """Whether the thread records gradients, and its modes, as far as Python can put them back."""

    def __init__(self) -> None:
        self._grad = torch.is_grad_enabled()
        self._modes = mode_counts()

    def restore(self, raised: BaseException | None = None) -> None:
        del raised
        torch.set_grad_enabled(self._grad)
        take_off_modes(*self._modes)


class WriteCounter:
    """As the native one, for as long as this very tensor lives."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = weakref.ref(tensor)

    def add(self) -> None:
        tensor = self._tensor()
        if tensor is not None and not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)


class HandGraph:
    """As the native one."""

    def __init__(self, tape: Tape, replay_lock: ReplayLock) -> None:
        self._tape = tape
        self._replay_lock = replay_lock
        self._settings = settings()
        self._memory: list[tuple[torch.UntypedStorage, int, int]] = []
        self._written: list[WriteCounter] = []

    def add_memory(self, whole: torch.Tensor) -> None:
        storage = whole.untyped_storage()
        self._memory.append((storage, storage.data_ptr(), storage.nbytes()))

    def add_written(self, count: WriteCounter) -> None:
        self._written.append(count)

    def replay(self) -> InputProblem | None:
        with self._replay_lock.holding("replay of a CPUGraph"):
            for index, (storage, address, nbytes) in enumerate(self._memory):
                if storage.data_ptr() != address or storage.nbytes() != nbytes:
                    return InputProblem(ProblemKind.LOST, index)
            if settings() != self._settings:
                return InputProblem(ProblemKind.SETTINGS)
            for count in self._written:
                count.add()
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
