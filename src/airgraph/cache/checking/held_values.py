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
import pathlib
import re
import types
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from airgraph.errors import Unwritable
from airgraph.program.code_identity import digest_of_code, goes_by_version, identity_of, is_code, is_versioned_class

__all__ = ["HeldValue", "digest_of_value"]

_MOST_VALUES = 20_000
_MOST_BYTES = 1 << 20
_CONSTANTS = (bool, int, float, str, bytes, complex, type(None), type(...), torch.dtype, torch.device, torch.layout)
_BY_TEXT = (
    range, slice, re.Pattern, pathlib.PurePath, decimal.Decimal, fractions.Fraction, uuid.UUID, datetime.date,
    datetime.time, datetime.timedelta, datetime.tzinfo, torch.finfo, torch.iinfo,
)  # fmt: skip
# Of classes and modules, what says nothing of what they hold.
_UNTOLD = {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__qualname__", "__slots__"}


@dataclass(frozen=True, slots=True)
class HeldValue:
    """text: hexadecimal digits. depends_on_hashes: whether it holds a set that has another order in each process."""

    text: str
    depends_on_hashes: bool


def digest_of_value(value: Any) -> HeldValue:
    """Raises Unwritable for what is too large to be compared at each start."""
    walk = _Walk()
    walk.enter(value)
    return HeldValue(walk.digest.hexdigest(), walk.depends_on_hashes)


class _Walk:
    """Writes a value into a digest; what it has met before is written as its number."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.depends_on_hashes = False
        self._met: dict[int, tuple[int, Any]] = {}

    def _write(self, *texts: str) -> None:
        for text in texts:
            self.digest.update(text.encode("utf-8", "surrogatepass"))
            self.digest.update(b"\0")

    def enter(self, value: Any) -> None:
        if isinstance(value, enum.Enum):
            self._write(type(value).__qualname__, value.name, repr(value._value_))
            return
        if isinstance(value, _CONSTANTS):
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
        if isinstance(value, types.MethodType):
            self._enter_all((value.__self__, value.__func__))
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, type):
            self._class(value)
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
        elif isinstance(value, functools.partial):
            self._enter_all((value.func, value.args, value.keywords))
        elif isinstance(value, (staticmethod, classmethod)):
            self.enter(value.__func__)
        elif isinstance(value, property):
            self._enter_all((value.fget, value.fset, value.fdel))
        elif class_.__module__ == "numpy" and hasattr(value, "tobytes"):
            self._bytes(f"{value.dtype} {value.shape}", value.nbytes, lambda: value.tobytes())
        else:
            self._object(value)

    def _function(self, function: types.FunctionType) -> None:
        self._write(f"{function.__module__}.{function.__qualname__}", digest_of_code(function.__code__))
        cells = [_contents(cell) for cell in function.__closure__ or ()]
        # What PyTorch's and Python's own close over is their business.
        if not goes_by_version(function.__globals__.get("__name__")):
            self._enter_all((function.__defaults__, function.__kwdefaults__, *cells))

    def _class(self, class_: type) -> None:
        self._write(identity_of(class_))
        for each in class_.__mro__:
            if not is_versioned_class(each):
                # What it does is part of its identity.
                data = {name: held for name, held in vars(each).items() if name not in _UNTOLD and _is_data(held)}
                self._enter_all(part for name in sorted(data) for part in (name, data[name]))

    def _set(self, value: set[Any] | frozenset[Any]) -> None:
        if len(value) > 1 and not all(isinstance(item, int) for item in value):
            self.depends_on_hashes = True
        self._write(*sorted(digest_of_value(item).text for item in value))

    def _tensor(self, value: torch.Tensor) -> None:
        form = f"{value.dtype} {tuple(value.shape)} {value.device}"
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
            self._write(form)
            return
        with torch.no_grad(), torch._C._DisableTorchDispatch():
            self._bytes(
                form, value.nbytes, lambda: bytes(value.detach().cpu().contiguous().flatten().view(torch.uint8))
            )

    def _bytes(self, form: str, nbytes: int, read: Any) -> None:
        if nbytes > _MOST_BYTES:
            raise Unwritable(f"code that ran while tracing reads an array of {nbytes} bytes, too large to be compared")
        self._write(form)
        self.digest.update(read())

    def _object(self, value: Any) -> None:
        class_ = type(value)
        self._write(identity_of(class_))
        if not is_versioned_class(class_) or isinstance(value, (types.SimpleNamespace, torch.nn.Module)):
            state = dict(_state_of(value))
            self._enter_all(part for name in sorted(state) for part in (name, state[name]))


def _state_of(value: Any) -> Iterator[tuple[str, Any]]:
    held = getattr(value, "__dict__", None)
    if isinstance(held, dict):
        yield from ((str(name), each) for name, each in held.items())
    for class_ in type(value).__mro__:
        for name, member in vars(class_).items():
            if isinstance(member, types.MemberDescriptorType):
                try:
                    yield name, member.__get__(value)
                except AttributeError:
                    continue


def _is_data(held: Any) -> bool:
    return not is_code(held) and not hasattr(type(held), "__get__")


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None
