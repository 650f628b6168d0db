"""What tells one function, class or module from another, in this process and the next."""

from __future__ import annotations

import _abc  # type: ignore[import-not-found]
import enum
import functools
import hashlib
import os
import sys
import threading
import types
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from airgraph.torch_internals.untraced import untraced

__all__ = [
    "CODE",
    "at_once",
    "behaviour_of",
    "digest_of_code",
    "goes_by_version",
    "held_text",
    "with_metaclasses",
    "identity_of",
    "is_code",
    "is_under_torch",
    "is_versioned_class",
]

_OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
_WRAPPERS = (types.CodeType, types.WrapperDescriptorType, types.MethodDescriptorType, types.MethodWrapperType)
CODE = (
    types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, type, *_WRAPPERS, *_OPERATORS
)  # fmt: skip
_CONSTANTS = (bool, int, float, str, bytes, complex, type(None), type(...), torch.dtype, torch.device, torch.layout)
_BY_VERSION = frozenset(sys.stdlib_module_names) - {"__main__"} | {"torch", "torch_npu", "airgraph"}
# What PyTorch itself is built on.
_UNDER_TORCH = {
    "sympy", "mpmath", "numpy", "networkx", "jinja2", "markupsafe", "fsspec", "filelock", "typing_extensions",
    "torchgen", "tqdm", "setuptools", "_distutils_hack",
}  # fmt: skip
_STANDARD_LIBRARY = os.path.realpath(os.path.dirname(os.__file__))
# Of a class, what says nothing of what its objects do.
_UNTOLD = {
    "__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__annotate__", "__annotate_func__",
    "__annotations_cache__", "__abstractmethods__", "_abc_impl", "__firstlineno__", "__static_attributes__",
    "__orig_bases__", "__parameters__", "__dataclass_params__", "__hash__", "__match_args__", "__qualname__",
    "_member_map_", "_value2member_map_", "_member_names_", "_use_args_", "_unhashable_values_", "_hashable_values_",
    "_new_member_", "_generate_next_value_", "_value_repr_", "_inverted_", "__slotnames__",
}  # fmt: skip

# Of a code's flags: whether it takes *args, is a generator and so on; not what `from __future__` sets.
_KIND_FLAGS = 0x3FF
# Of a class's flags: made by a class statement or its like (Py_TPFLAGS_HEAPTYPE).
_MADE_BY_PYTHON = 1 << 9

_codes: dict[int, tuple[weakref.ref[types.CodeType], str]] = {}
_local = threading.local()


def is_code(value: Any) -> bool:
    """Whether a value is told from others by what it does: a function, method, class or module."""
    return isinstance(value, CODE)


def goes_by_version(module: str | None) -> bool:
    """Whether a module is of Python, PyTorch or airgraph, whose versions are compared as a whole."""
    package = str(module).partition(".")[0]
    return package in _BY_VERSION and _comes_from_there(package, getattr(sys.modules.get(package), "__file__", None))


def is_under_torch(module: str) -> bool:
    """Whether a module is of a library that PyTorch stands on: what it does and keeps is not the program's."""
    return module.partition(".")[0] in _UNDER_TORCH


@functools.cache
def _comes_from_there(package: str, file: str | None) -> bool:
    """Not so where a file of the user's has the name of a module of the standard library."""
    if package not in sys.stdlib_module_names or not isinstance(file, str):
        return True
    folder = os.path.realpath(os.path.dirname(os.path.abspath(file)))
    parts = set(os.path.relpath(folder, _STANDARD_LIBRARY).split(os.sep))
    return parts.isdisjoint({os.pardir, "site-packages", "dist-packages"})


def is_versioned_class(class_: type) -> bool:
    """Whether a class is what a module that goes by version has under its name: `__module__` alone may be untrue."""
    if not goes_by_version(class_.__module__):
        return False
    found: Any = sys.modules.get(class_.__module__)
    for part in class_.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    # Those that C code keeps to itself are nobody's to change.
    return found is class_ or not class_.__flags__ & _MADE_BY_PYTHON


@contextmanager
def at_once() -> Iterator[None]:
    """Within, each class is looked at only once: for many questions in a row, while nothing changes."""
    before = getattr(_local, "classes", None)
    _local.classes = {} if before is None else before
    try:
        yield
    finally:
        _local.classes = before


def identity_of(value: Any) -> str:
    """Its full name; of a function also a digest of its code, defaults and what it closes over; of a class also one of
    what it and its bases define."""
    return _Description().code(value)


def behaviour_of(class_: type) -> str:
    """The identity of a class without the values of its data, such as a counter's; enums' members are no data.

    Which data a class has by itself decides where a look-up ends: one that is set on it hides that of its bases.
    """
    return _Description(with_data=False).code(class_)


def with_metaclasses(class_: type) -> list[type]:
    """All classes that decide what a class does."""
    metaclass: type = type(class_)
    return [*class_.__mro__, *metaclass.__mro__]


def held_text(value: Any) -> str:
    """Constants, containers and code as text that is the same in all processes; of others the class."""
    return _Description().value(value)


def digest_of_code(code: types.CodeType) -> str:
    """Without its lines: a function that was typed again is the same."""
    known = _codes.get(id(code))
    if known is not None and known[0]() is code:
        return known[1]
    digest = hashlib.sha256(code.co_code)
    digest.update(getattr(code, "co_exceptiontable", b""))
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _KIND_FLAGS)
    for part in (counts, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
        digest.update(repr(part).encode())
    for constant in code.co_consts:
        digest.update(_constant(constant).encode())
        digest.update(b"\0")
    text = digest.hexdigest()
    key = id(code)
    _codes[key] = (weakref.ref(code, functools.partial(_forget, key)), text)
    return text


@untraced
def _forget(key: int, _: object) -> None:
    _codes.pop(key, None)


def _constant(constant: Any) -> str:
    if isinstance(constant, types.CodeType):
        return digest_of_code(constant)
    if isinstance(constant, tuple):
        return f"({','.join(map(_constant, constant))})"
    # The order of a set differs from process to process.
    return repr(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant)


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"


class _Description:
    """Puts values into words. What leads back to itself is only named there."""

    def __init__(self, *, with_data: bool = True) -> None:
        self._with_data = with_data
        self._entered: set[int] = set()
        self._within_class = False

    def code(self, value: Any) -> str:
        if isinstance(value, types.ModuleType):
            return value.__name__
        if isinstance(value, types.CodeType):
            return f"code {digest_of_code(value)[:16]}"
        if isinstance(value, _OPERATORS):
            return f"operator {value}"
        if isinstance(value, types.MethodType):
            return f"{_name(value)} of {type(value.__self__).__qualname__}: {self.code(value.__func__)}"
        if isinstance(value, type):
            return self._class(value)
        if not isinstance(value, types.FunctionType) or id(value) in self._entered:
            return _name(value)
        with self._entering(value):
            held = [value.__defaults__, value.__kwdefaults__, *(_contents(cell) for cell in value.__closure__ or ())]
            parts = [digest_of_code(value.__code__), *map(self.value, held)]
        return f"{_name(value)} {_digest(parts)}"

    def value(self, value: Any) -> str:
        if isinstance(value, enum.Enum):
            return f"{_name(type(value))}.{value.name}={value._value_!r}"
        if isinstance(value, _CONSTANTS):
            return repr(value)
        if is_code(value):
            return self.code(value)
        if id(value) in self._entered:
            return type(value).__qualname__
        with self._entering(value):
            return self._composed(value)

    def _composed(self, value: Any) -> str:
        if isinstance(value, (tuple, list)):
            return f"{type(value).__name__}({','.join(map(self.value, value))})"
        if isinstance(value, (set, frozenset)):
            return f"{type(value).__name__}({','.join(sorted(map(self.value, value)))})"
        if isinstance(value, Mapping):
            return f"{{{','.join(f'{self.value(key)}:{self.value(each)}' for key, each in value.items())}}}"
        if isinstance(value, (staticmethod, classmethod)):
            return f"{type(value).__name__} {self.value(value.__func__)}"
        if isinstance(value, property):
            return f"property {' '.join(map(self.value, (value.fget, value.fset, value.fdel)))}"
        if isinstance(value, functools.partial):
            return f"partial {self.value(value.func)} {self.value(value.args)} {self.value(value.keywords)}"
        inner = next((held for name in ("func", "__wrapped__", "__func__") if (held := _own(value, name))), None)
        return f"{type(value).__qualname__} {self.value(inner)}" if is_code(inner) else type(value).__qualname__

    def _class(self, class_: type) -> str:
        name = _name(class_)
        # One that another holds is looked at where it is used.
        if self._within_class or is_versioned_class(class_):
            return name
        # Within a function, what leads back to that one is only named.
        known = None if self._entered else getattr(_local, "classes", None)
        if known is not None and (class_, self._with_data) in known:
            return str(known[class_, self._with_data])
        self._within_class = True
        parts = [part for each in with_metaclasses(class_) for part in self._defined(each)]
        self._within_class = False
        made = f"{name} {_digest(parts)}"
        if known is not None:
            known[class_, self._with_data] = made
        return made

    def _defined(self, class_: type) -> Iterator[str]:
        yield _name(class_)
        if not is_versioned_class(class_):
            for name, value in sorted(vars(class_).items()):
                if name not in _UNTOLD:
                    is_told = self._with_data or not _is_data(value)
                    yield f"{name}={self.value(value)}" if is_told else f"{name} is data"
            if "_abc_impl" in vars(class_):
                yield f"registered={sorted({_name(each) for each in _registered(class_)})}"

    @contextmanager
    def _entering(self, value: Any) -> Iterator[None]:
        self._entered.add(id(value))
        try:
            yield
        finally:
            self._entered.discard(id(value))


def _is_data(value: Any) -> bool:
    return isinstance(value, (*_CONSTANTS, tuple, list, set, frozenset, Mapping)) and not isinstance(value, enum.Enum)


def _own(value: Any, name: str) -> Any:
    held = getattr(value, "__dict__", None)
    return held.get(name) if isinstance(held, dict) else None


def _digest(parts: list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _registered(class_: type) -> Iterator[type]:
    """Classes that say of themselves that they are subclasses of this one, or of a subclass of it."""
    if "_abc_impl" in vars(class_):
        for each in _abc._get_dump(class_)[0]:
            held = each()
            if held is not None:
                yield held
    subclasses: list[type] = type.__subclasses__(class_)
    for below in subclasses:
        yield from _registered(below)
