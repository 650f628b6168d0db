"""Replays tapes in Python, with the names of the native engine: where there is no compiler."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from airgraph.program.inputs import span_nbytes

__all__ = [
    "DeviceLaunch",
    "DeviceNeighbours",
    "Launch",
    "LiveOutputs",
    "MOVES_MEMORY",
    "Neighbours",
    "ReplayFailure",
    "Tape",
    "allocate",
    "bytes_at",
    "unallocated",
    "view_at",
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


def unallocated(sizes: list[int], strides: list[int], dtype: torch.dtype) -> torch.Tensor:
    # Without the native engine it has memory of its own from the start.
    return torch.empty_strided(sizes, strides, dtype=dtype, device="cpu")


def allocate(tensor: torch.Tensor) -> None:
    """Nothing to do: see `unallocated`."""


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


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    """All but the values; the stride of a single element says nothing."""
    strides = [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]
    return tuple(tensor.shape), strides, tensor.dtype, tensor.device, tensor.is_conj(), tensor.is_neg()


class _Inputs:
    def __init__(self) -> None:
        self._fixed: list[tuple[int, int]] = []
        self._copied: list[tuple[int, torch.Tensor, torch.device]] = []
        self._formed: list[tuple[int, tuple[Any, ...]]] = []
        self._kept: list[tuple[int, torch.Tensor, int]] = []
        self._written: list[int] = []
        self._apart: list[tuple[int, int]] = []

    def keep_apart(self, address: int, nbytes: int) -> None:
        self._apart.append((address, address + nbytes))

    def add_written_input(self, index: int) -> None:
        self._written.append(index)

    def add_fixed_input(self, index: int, address: int) -> None:
        self._fixed.append((index, address))

    def add_copied_input(self, index: int, buffer: torch.Tensor, like: torch.Tensor) -> None:
        self._copied.append((index, buffer, like.device))

    def add_kept_input(self, index: int, theirs: torch.Tensor) -> None:
        self._copied.append((index, theirs, theirs.device))
        self._kept.append((index, theirs, theirs.data_ptr()))

    def add_formed_input(self, index: int, like: torch.Tensor) -> None:
        self._formed.append((index, _form(like)))

    def check(self, args: list[Any]) -> tuple[str, int] | None:
        for index, address in self._fixed:
            if args[index].data_ptr() != address:
                return "moved", index
        for index, theirs, address in self._kept:
            if theirs.data_ptr() != address:
                return "moved", index
        for index, form in self._formed:
            if _form(args[index]) != form:
                return "mismatched", index
        for index, buffer, device in self._copied:
            given = args[index]
            if given.shape != buffer.shape or given.dtype != buffer.dtype or given.device != device:
                return "mismatched", index
            if self._apart and given.numel():
                begin, end = given.data_ptr(), given.data_ptr() + span_nbytes(given)
                if any(begin < last and first < end for first, last in self._apart):
                    return "mismatched", index
        return None

    def copy_inputs(self, args: list[Any]) -> None:
        torch.autograd.graph.increment_version([args[i] for i in self._written if not args[i].is_inference()])
        with torch.inference_mode():
            # All sources before the first copy: the user may have swapped tensors that are copied into.
            sources = [args[index].clone() if self._kept else args[index] for index, _, _ in self._copied]
            for (_, buffer, _), source in zip(self._copied, sources, strict=True):
                buffer.copy_(source, non_blocking=True)


class DeviceLaunch(_Inputs):
    """As the native one, but outputs are copies, so none is ever overwritten."""

    def __init__(self, replay: Callable[[], None], device: str, policy: int, neighbours: Neighbours) -> None:
        super().__init__()
        self._replay = replay
        self._slots: list[torch.Tensor] = []

    def add_output(self, slot: torch.Tensor) -> None:
        self._slots.append(slot)

    def held_outputs(self) -> int:
        return 0

    def run(self, args: list[Any]) -> list[torch.Tensor] | tuple[str, int]:
        problem = self.check(args)
        if problem is not None:
            return problem
        self.copy_inputs(args)
        self._replay()
        return [slot.clone() for slot in self._slots]

    def close(self) -> None:
        """Nothing to do: see the class."""

    def blank(self) -> list[torch.Tensor]:
        return [torch.zeros_like(slot) for slot in self._slots]


class Launch(_Inputs):
    """As the native one, but outputs are copies, so none is ever overwritten."""

    def __init__(self, tape: Tape, policy: int, neighbours: Neighbours) -> None:
        super().__init__()
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

    def run(self, args: list[Any]) -> list[torch.Tensor] | tuple[str, int]:
        problem = self.check(args)
        if problem is not None:
            return problem
        self.copy_inputs(args)
        self.replay()
        copies = [slot.clone() for slot in self._storages]
        return [view_at(copies[storage], *spec) for storage, *spec in self._outputs]

    def blank(self) -> list[torch.Tensor]:
        zeros = [torch.zeros_like(slot) for slot in self._storages]
        return [view_at(zeros[storage], *spec) for storage, *spec in self._outputs]

    def replay(self) -> None:
        self._tape.replay()


class Watch:
    """See `csrc/watch.h`."""

    def __init__(self, *watched: tuple[tuple[Any, ...], ...]) -> None:
        self._items, self._lengths, self._absent, self._keys = watched[:4]
        self._attributes, self._types, self._class_items, self._class_absent = watched[4:]

    def changed(self) -> bool:
        try:
            return (
                any(container[key] is not value for container, key, value in self._items)
                or any(len(container) != length for container, length in self._lengths)
                or any(name in container for container, name in self._absent)
                or any(tuple(container) != expected for container, expected in self._keys)
                or any(getattr(owner, name) is not value for owner, name, value in self._attributes)
                or any(type(owner) is not expected for owner, expected in self._types)
                or any(vars(class_)[name] is not value for class_, name, value in self._class_items)
                or any(hasattr(class_, name) for class_, name in self._class_absent)
            )
        except (LookupError, AttributeError, TypeError):
            return True
