"""What values that code reads while tracing hold, however deep, as a digest that is the same in every process.

Dynamo guards what the code reads that it inlines. Code that runs below it, such as a callee of `allow_in_graph`, may
read anything, so all that its names lead to is compared: data, attributes of objects, defaults and closures.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import fractions
import functools
import hashlib
import io
import logging
import pathlib
import re
import threading
import types
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from airgraph.errors import Unwritable
from airgraph.program.code_identity import (
    digest_of_code,
    goes_by_version,
    identity_of,
    is_code,
    is_under_torch,
    is_versioned_class,
)
from airgraph.program.names_read import UsedCode, reads_of
from airgraph.torch_internals import dynamo_texts
from airgraph.torch_internals.dispatcher import MODULES_OF_OPERATORS, without_dispatch_modes
from airgraph.torch_internals.fake_tensors import FakeTensor, is_traceable_wrapper_subclass
from airgraph.torch_internals.modes import without_torch_function

__all__ = ["HeldValue", "digest_of_value"]

_MOST_VALUES = 20_000
_MOST_BYTES = 1 << 20
_CONSTANTS = (bool, int, float, str, bytes, complex, type(None), type(...), torch.dtype, torch.device, torch.layout)
_BY_TEXT = (
    range, slice, pathlib.PurePath, decimal.Decimal, fractions.Fraction, uuid.UUID, datetime.date,
    datetime.time, datetime.timedelta, datetime.tzinfo, torch.finfo, torch.iinfo,
)  # fmt: skip
_TEXTS_AND_NUMBERS = (int, float, str, bytes, complex)
_CACHED = type(functools.lru_cache(lambda: None))
# Nor is what goes in or out through a file the program's own.
_HOLD_NOTHING = (
    type(threading.Lock()), type(threading.RLock()), threading.Condition, io.TextIOWrapper, io.BufferedReader,
    io.BufferedWriter,
)  # fmt: skip
# They have attributes, and nothing else.
_WITH_ATTRIBUTES = (types.SimpleNamespace, torch.nn.Module)
# What Python gives to each member of an enumeration: its name, its value, its class and its place.
_OF_ENUM = {"_name_", "_value_", "__objclass__", "_sort_order_"}
# Of classes and modules, what says nothing of what they hold.
_UNTOLD = {
    "__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__qualname__", "__slots__", "__slotnames__",
    "_abc_impl",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class HeldValue:
    """text: hexadecimal digits. depends_on_hashes: whether it holds a set whose order comes from the seed of hashes.
    depends_on_addresses: from where its elements lie."""

    text: str
    depends_on_hashes: bool
    depends_on_addresses: bool


def digest_of_value(value: Any) -> HeldValue:
    """Raises Unwritable for what is too large to be compared at each start."""
    walk = _Walk()
    walk.enter(value)
    return HeldValue(walk.digest.hexdigest(), walk.depends_on_hashes, walk.depends_on_addresses)


class _Walk:
    """Writes a value into a digest; what it has met before is written as its number."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.depends_on_hashes = False
        self.depends_on_addresses = False
        self._met: dict[int, tuple[int, Any]] = {}

    def _write(self, *texts: str) -> None:
        for text in texts:
            self.digest.update(text.encode("utf-8", "surrogatepass"))
            self.digest.update(b"\0")

    def enter(self, value: Any) -> None:
        if isinstance(value, enum.Enum):
            self._write(type(value).__qualname__, value.name, repr(value._value_))
            if not is_versioned_class(type(value)) and id(value) not in self._met:
                self._met[id(value)] = (len(self._met), value)
                self._attributes(value)
            return
        if type(value) in _CONSTANTS or isinstance(value, (torch.dtype, torch.layout)):
            self._write(type(value).__qualname__, repr(value))
            return
        known = self._met.get(id(value))
        if known is not None:
            self._write(f"met {known[0]}")
            return
        if len(self._met) >= _MOST_VALUES:
            raise Unwritable("code that ran while tracing reads more than could be compared at each start")
        # Kept, so that no other value comes to its address meanwhile.
        self._met[id(value)] = (len(self._met), value)
        self._compose(value)

    def _enter_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self.enter(value)
        self._write("end")

    def _compose(self, value: Any) -> None:
        class_ = type(value)
        self._write(class_.__qualname__)
        if isinstance(value, _TEXTS_AND_NUMBERS):
            base = next(each for each in _TEXTS_AND_NUMBERS if isinstance(value, each))
            self._write(identity_of(class_), base.__repr__(value))
        elif isinstance(value, (types.MethodType, types.BuiltinMethodType)) and not _is_static(value):
            self._enter_all((value.__self__, getattr(value, "__func__", value.__name__)))
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, re.Pattern):
            # Its text is cut short.
            self._write(repr(value.pattern), str(value.flags))
        elif is_code(value) or isinstance(value, _BY_TEXT):
            self._write(identity_of(value) if is_code(value) else repr(value))
        elif isinstance(value, torch.Tensor):
            self._tensor(value)
        elif isinstance(value, (tuple, list, collections.deque)):
            self._enter_all(value)
        elif isinstance(value, (set, frozenset)):
            self._set(value)
        elif isinstance(value, Mapping):
            self._enter_all(each for item in value.items() for each in item)
        elif isinstance(value, (types.UnionType, types.GenericAlias)):
            self._enter_all((getattr(value, "__origin__", None), value.__args__))
        elif isinstance(value, functools.partial):
            self._enter_all((value.func, value.args, value.keywords))
        elif isinstance(value, (staticmethod, classmethod)):
            self.enter(value.__func__)
        elif isinstance(value, property):
            self._enter_all((value.fget, value.fset, value.fdel))
        elif (
            class_.__module__ == "numpy" and hasattr(value, "tobytes") and not getattr(value.dtype, "hasobject", False)
        ):
            self._bytes(f"{value.dtype} {value.shape}", value.nbytes, lambda: value.tobytes())
        elif isinstance(value, logging.Logger):
            self._write(value.name, str(value.getEffectiveLevel()))
            return
        elif isinstance(value, _CACHED):
            # What it has kept comes from what its function reads, which did not run.
            self._enter_all((value.__wrapped__, *_globals_of(value.__wrapped__)))
        else:
            self._object(value)
            return
        self._attributes(value)

    def _attributes(self, value: Any) -> None:
        """Of what has a value of its own besides."""
        if isinstance(value, (type, types.ModuleType)) or (is_code(value) and goes_by_version(_module_of(value))):
            return
        state = {
            name: held
            for name, held in _state_of(value)
            if not name.startswith(dynamo_texts.ATTRIBUTES) and name not in _OF_ENUM
        }
        if state:
            self._enter_all(part for name in sorted(state) for part in (name, state[name]))

    def _function(self, function: types.FunctionType) -> None:
        self._write(f"{function.__module__}.{function.__qualname__}", digest_of_code(function.__code__))
        cells = [_contents(cell) for cell in function.__closure__ or ()]
        # What PyTorch's and Python's own close over is their business.
        if not goes_by_version(function.__globals__.get("__name__")):
            self._enter_all((function.__defaults__, function.__kwdefaults__, *cells))

    def _class(self, class_: type) -> None:
        self._write(identity_of(class_))
        for each in class_.__mro__:
            if not is_versioned_class(each) and not is_under_torch(each.__module__):
                # What it does is part of its identity.
                data = {name: held for name, held in vars(each).items() if name not in _UNTOLD and _is_held(held)}
                self._enter_all(part for name in sorted(data) for part in (name, data[name]))

    def _set(self, value: set[Any] | frozenset[Any]) -> None:
        if len(value) > 1 and not all(isinstance(item, int) for item in value):
            self.depends_on_hashes = True
            self.depends_on_addresses |= any(_is_hashed_by_address(item) for item in value)
        self._write(*sorted(digest_of_value(item).text for item in value))

    def _tensor(self, value: torch.Tensor) -> None:
        form = f"{value.dtype} {tuple(value.shape)} {value.device}"
        if isinstance(value, FakeTensor) or value.is_meta:
            self._write(form)
            return
        if value.layout is not torch.strided or value.is_quantized or is_traceable_wrapper_subclass(value):
            raise _cannot_be_compared(value)
        with torch.no_grad(), without_torch_function(), without_dispatch_modes():
            plain = value.detach().as_subclass(torch.Tensor).cpu().resolve_conj().resolve_neg().contiguous().flatten()
            self._bytes(form, value.nbytes, lambda: bytes(plain.view(torch.uint8)))

    def _bytes(self, form: str, nbytes: int, read: Any) -> None:
        if nbytes > _MOST_BYTES:
            raise Unwritable(f"code that ran while tracing reads an array of {nbytes} bytes, too large to be compared")
        self._write(form)
        self.digest.update(read())

    def _object(self, value: Any) -> None:
        class_ = type(value)
        self._write(identity_of(class_))
        if _holds_nothing(value):
            return
        if not is_versioned_class(class_) or isinstance(value, _WITH_ATTRIBUTES):
            state = dict(_state_of(value))
            self._enter_all(part for name in sorted(state) for part in (name, state[name]))
        if _is_taken_apart(value):
            self._by_parts(value)

    def _by_parts(self, value: Any) -> None:
        """Of an object of Python's own classes, as `copy` and `pickle` take it apart."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                parts = value.__reduce_ex__(2)
        except Exception as error:
            # Whatever a class raises that refuses to be copied.
            raise _cannot_be_compared(value) from error
        if isinstance(parts, str):
            self._write(parts)
            return
        made_by, made_of, state, items, pairs = (*parts, None, None, None)[:5]
        self._enter_all((made_by, made_of, state, list(items or ()), [list(pair) for pair in pairs or ()]))


def _state_of(value: Any) -> Iterator[tuple[str, Any]]:
    held = getattr(value, "__dict__", None)
    if isinstance(held, dict):
        yield from ((str(name), each) for name, each in held.items())
    for class_ in type(value).__mro__:
        # Those of Python's own classes are their business, such as a function's __globals__.
        for name, member in () if is_versioned_class(class_) else vars(class_).items():
            if isinstance(member, types.MemberDescriptorType):
                try:
                    yield name, member.__get__(value)
                except AttributeError:
                    continue


def _cannot_be_compared(value: Any) -> Unwritable:
    class_ = type(value)
    return Unwritable(
        f"code that ran while tracing reads a {class_.__module__}.{class_.__qualname__}, and what it holds cannot be "
        "compared at another start"
    )


def _holds_nothing(value: Any) -> bool:
    """Nothing that decides a graph, or what is compared elsewhere."""
    module = type(value).__module__
    return isinstance(value, _HOLD_NOTHING) or module.startswith((*MODULES_OF_OPERATORS, "multiprocessing.synchronize"))


def _is_taken_apart(value: Any) -> bool:
    """Whether attributes do not say all: of Python's and PyTorch's own objects, and where a base is written in C."""
    bases = (base for base in type(value).__mro__ if base is not object)
    in_c = any(isinstance(vars(base).get("__new__"), types.BuiltinFunctionType) for base in bases)
    return in_c or (is_versioned_class(type(value)) and not isinstance(value, _WITH_ATTRIBUTES))


def _is_held(held: Any) -> bool:
    """Whether it is data of a class, or a class within, and no code, which is part of the identity."""
    return isinstance(held, type) or (not is_code(held) and not hasattr(type(held), "__get__"))


def _is_static(method: Any) -> bool:
    """Whether it is a function of a module, or of a class without an object."""
    return method.__self__ is None or isinstance(method.__self__, (types.ModuleType, type))


def _is_hashed_by_address(item: Any) -> bool:
    hashed_by: Any = type(item).__hash__
    return is_code(item) or hashed_by is object.__hash__


def _globals_of(function: Any) -> Iterator[Any]:
    """The values that a function's names lead to, and those of the functions among them."""
    met: set[int] = set()
    waiting = [function]
    while waiting:
        each = waiting.pop()
        if not isinstance(each, types.FunctionType) or id(each) in met or goes_by_version(each.__module__):
            continue
        met.add(id(each))
        for _, _, held in reads_of(UsedCode(each.__code__, each.__globals__, inlined=False)):
            waiting.append(held)
            if not isinstance(held, types.ModuleType):
                yield held


def _module_of(code: Any) -> str | None:
    """Of a method written in C that of its class."""
    module: str | None = getattr(code, "__module__", None) or getattr(code, "__objclass__", type(code)).__module__
    return module


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None
