"""What the compile cache asks for: to observe a trace, to read calls, to watch what was taken for granted."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch

from airgraph.torch_internals import modes, settings
from airgraph.torch_internals.dispatcher import dispatch_keys

_ABSENT = object()


class Observer:
    """See `csrc/cache/observer.h`."""

    def __init__(
        self,
        watched: list[tuple[CodeType, Callable[[Any], None]]],
        passed_over: list[CodeType],
        built_in: list[Any],
        on_built_in: Callable[[Any, Any], None],
        on_first: Callable[[Any], Callable[[Any], None] | None],
        is_own: Callable[[Any], bool | None],
    ) -> None:
        self._watched = {id(code): (code, function) for code, function in watched}
        self._passed_over = {id(code): code for code in passed_over}
        self._built_in = {id(function): function for function in built_in}
        self._on_built_in = on_built_in
        self._on_first = on_first
        self._is_own = is_own
        self._known: dict[int, CodeType] = {}
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
        if id(code) not in self._known:
            self._known[id(code)] = code
            if self._is_own(frame):
                self._note_own(code, frame)
        if id(code) in self._watched:
            self._watched[id(code)][1](frame)

    def _note_own(self, code: CodeType, frame: FrameType) -> None:
        self._seen[id(code)] = (code, frame.f_globals)
        function = None if id(code) in self._watched else self._on_first(frame)
        if function is not None:
            self._watched[id(code)] = (code, function)


class Settled:
    """See `csrc/cache/settled.h`."""

    def __init__(self, devices: dict[str, Any]) -> None:
        self._devices = devices
        self._state: tuple[Any, ...] = ()

    def settle(self) -> None:
        self._state = self._now()

    def unchanged(self) -> bool:
        dispatch, _ = modes.mode_counts()
        return dispatch == 0 and not modes.is_transformed() and self._state == self._now()

    def _now(self) -> tuple[Any, ...]:
        devices = ("cpu", "cuda", "privateuseone")
        return (
            torch.get_default_dtype(),
            torch.is_autocast_cache_enabled(),
            *((torch.is_autocast_enabled(each), torch.get_autocast_dtype(each)) for each in devices),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            settings.cublas_reductions(),
            *settings.modes_by_device(),
            modes.torch_function_enabled(),
            self._devices.get("CURRENT_DEVICE"),
        )


class Gate:
    """See `csrc/cache/gate.cpp`."""

    def __init__(self, watch: Any, settled: Any, reader: Any) -> None:
        self._watch, self._settled, self._reader = watch, settled, reader

    def read(self, values: tuple[Any, ...]) -> Any:
        if self._watch.changed() or not self._settled.unchanged():
            return False
        return self._reader.read(values)


class Door:
    """See `csrc/python/door.h`."""

    def __init__(
        self, *, gate: Any, callable: Any, build: Callable[..., Any] | int, miss: object, follows: Door | None
    ) -> None:
        self._gate, self._callable, self._build, self._miss = gate, callable, build, miss
        self.tally: list[int] = [0] if follows is None else follows.tally

    @property
    def calls(self) -> int:
        return self.tally[0]

    def __call__(self, values: tuple[Any, ...]) -> Any:
        usual = self._callable.usual
        args = None if usual is None else self._gate.read(values)
        if type(args) is not list:
            return self._miss
        try:
            outputs = usual.call(args)
        except usual.graph.failure as failure:
            explained = usual.explained(failure)
            if explained is failure:
                raise
            raise explained from failure
        if outputs is None:
            return self._miss
        self.tally[0] += 1
        return outputs[self._build] if isinstance(self._build, int) else self._build(outputs, *values)


def call_by_door(of: type, own: Any) -> None:
    """Nothing: its own `__call__` asks entries."""


class SetBack:
    """See `csrc/cache/set_back.h`."""

    def __init__(self) -> None:
        self._kept: list[tuple[Any, str, Any]] = []
        self._kept_items: list[tuple[dict[Any, Any], dict[Any, Any]]] = []

    def keep(self, owner: Any, name: str) -> None:
        held = getattr(owner, "__dict__", None)
        is_slot = hasattr(type(getattr(type(owner), name, None)), "__set__")
        own = getattr(owner, name, _ABSENT) if is_slot or held is None else held.get(name, _ABSENT)
        self._kept.append((owner, name, own))

    def keep_items(self, owner: dict[Any, Any]) -> None:
        self._kept_items.append((owner, owner.copy()))

    def __enter__(self) -> SetBack:
        return self

    def __exit__(self, *raised: object) -> None:
        kept, self._kept = self._kept, []
        for owner, name, value in reversed(kept):
            if value is not _ABSENT:
                object.__setattr__(owner, name, value)
            else:
                with contextlib.suppress(AttributeError):
                    object.__delattr__(owner, name)
        items, self._kept_items = self._kept_items, []
        for held, before in reversed(items):
            held.clear()
            held.update(before)


class CallReader:
    """See `csrc/cache/call_reader.h`."""

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
        if name == "formed":
            form = value.dtype, tuple(value.size()), tuple(value.stride())
            return form == rest[0] and _has_traits(value, type(value), *rest[1:])
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
        case "exactly":
            return _has_keys(value.__dict__, expected)
        case "keyed":
            return isinstance(value, dict) and _has_keys(value, expected)
        case "holds":
            return bool(expected(value))
    raise ValueError(f"no such instruction: {name}")


def _has_keys(held: Any, keys: tuple[Any, ...]) -> bool:
    return tuple(held) == keys and all(type(a) is type(b) for a, b in zip(held, keys, strict=True))


def _has_traits(value: Any, class_: Any, requires_grad: bool, is_leaf: bool, keys: int) -> bool:
    return (
        bool(type(value) is class_)
        and value.requires_grad == requires_grad
        and dispatch_keys(value).raw_repr() == keys
        and (not requires_grad or value.is_leaf == is_leaf)
    )


def _item(container: Any, key: Any) -> Any:
    """Of a dict the entry, whatever its class makes of it."""
    return dict.__getitem__(container, key) if isinstance(container, dict) else container[key]


class Watch:
    """See `csrc/cache/watch.h`."""

    def __init__(self) -> None:
        self._items: list[tuple[Any, Any, Any]] = []
        self._lengths: list[tuple[Any, int]] = []
        self._absent: list[tuple[Any, Any]] = []
        self._keys: list[tuple[Any, tuple[Any, ...]]] = []
        self._attributes: list[tuple[Any, str, Any]] = []
        self._types: list[tuple[Any, type, Any]] = []
        self._class_items: list[tuple[type, str, Any]] = []
        self._class_absent: list[tuple[type, str]] = []
        self._classes: list[Callable[[], bool]] = []
        self._functions: list[tuple[Any, ...]] = []
        self._cells: list[tuple[Any, Any]] = []

    def add_item(self, container: Any, key: Any, value: Any) -> None:
        self._items.append((container, key, value))

    def add_length(self, container: Any, length: int) -> None:
        self._lengths.append((container, length))

    def add_absent(self, owner: Any, key: Any) -> None:
        self._absent.append((owner, key))

    def add_keys(self, owner: Any, keys: tuple[Any, ...]) -> None:
        self._keys.append((owner, keys))

    def add_attribute(self, owner: Any, name: str, value: Any) -> None:
        self._attributes.append((owner, name, value))

    def add_type(self, owner: Any, expected: type) -> None:
        self._types.append((owner, expected, getattr(owner, "__dict__", None)))

    def add_class_item(self, owner: type, name: str, value: Any) -> None:
        self._class_items.append((owner, name, value))

    def add_class_absent(self, owner: type, name: str) -> None:
        self._class_absent.append((owner, name))

    def add_class(self, owner: type, is_as_it_was: Callable[[], bool]) -> None:
        self._classes.append(is_as_it_was)

    def add_function(self, function: Any) -> None:
        self._functions.append((function, function.__code__, function.__defaults__, function.__kwdefaults__))

    def add_cell(self, cell: Any, value: Any) -> None:
        self._cells.append((cell, value))

    def changed(self) -> bool:
        try:
            return (
                any(_item(container, key) is not value for container, key, value in self._items)
                or any(len(container) != length for container, length in self._lengths)
                or any(name in container for container, name in self._absent)
                or any(tuple(container) != expected for container, expected in self._keys)
                or any(getattr(owner, name) is not value for owner, name, value in self._attributes)
                or any(cell.cell_contents is not value for cell, value in self._cells)
                or any(
                    type(owner) is not expected or getattr(owner, "__dict__", None) is not held
                    for owner, expected, held in self._types
                )
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
