"""What a traced graph took for granted about Python values: Dynamo's guards as plain data that can be checked again.

A condition is (kind, path, expected):
- equals: the value is this constant, of the same type;
- type: the value's class has this full name;
- length: of a container; keys: a dict's keys, in order;
- named: the full name of a function or class, with its line if it is a lambda;
- has, lacks: an attribute of this name; inherits: an attribute of this name, but not of the object's own;
- same: the object at another path is this one;
- tensor: [dtype, device, sizes], of a tensor that is looked at and not computed with; a size that may differ is None.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from airgraph.cache.graph_format import Unwritable, value_from, value_to
from airgraph.cache.source_path import SourcePath, UnsupportedPath, is_made_by_dynamo, parse, resolve
from airgraph.errors import CacheError

__all__ = ["Condition", "Read", "conditions_of", "form_of_tensor", "name_of_type"]

_KINDS = ("equals", "type", "length", "keys", "named", "has", "lacks", "inherits", "same", "tensor")
# Reads a path; raises LookupError, AttributeError or TypeError where nothing is.
Read = Callable[[SourcePath], Any]

_CONSTANTS = (bool, int, float, str, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_CLASS = ".__class__"
_OF_VALUES = {"CONSTANT_MATCH", "EQUALS_MATCH", "BOOL_MATCH", "NONE_MATCH", "ID_MATCH"}
_OF_LENGTHS = {"SEQUENCE_LENGTH", "EMPTY_NN_MODULE_HOOKS_DICT"}
_OF_KEYS = {"DICT_KEYS_MATCH", "MAPPING_KEYS_CHECK", "DICT_CONTAINS", "DICT_NOT_CONTAINS"}
_OF_CODE = {"FUNCTION_MATCH", "CLOSURE_MATCH", "CLASS_MATCH", "BUILTIN_MATCH", "MODULE_MATCH"}
_CODE = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)
# Tensors are inputs, or get a condition of their own; the global state is part of the fingerprint or of `State`.
_ELSEWHERE = {
    "AUTOGRAD_SAVED_TENSORS_HOOKS", "DEFAULT_DEVICE", "DETERMINISTIC_ALGORITHMS", "DUAL_LEVEL", "FSDP_TRAINING_STATE",
    "FUNCTORCH_STACK_MATCH", "GLOBAL_STATE", "GRAD_MODE", "NN_MODULE", "NOT_NONE_MATCH", "SHAPE_ENV", "TENSOR_MATCH",
    "TORCH_FUNCTION_STATE", "WEAKREF_ALIVE",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Condition:
    """kind and expected: see the module; the path of a global may be missing, of an argument never."""

    kind: str
    path: SourcePath
    expected: Any

    def broken(self, read: Read) -> str | None:
        """Why it does not hold, in words, or None."""
        try:
            value = read(self.path)
        except (LookupError, AttributeError, TypeError):
            return f"{self.path.text} is missing"
        found = self._found(value, read)
        if type(found) is type(self.expected) and found == self.expected:
            return None
        if self.kind == "same":
            return f"{self.path.text} is not the same object as {self.expected} any more"
        return f"{self.kind} of {self.path.text}: expected {self.expected!r}, got {found!r}"

    def _found(self, value: Any, read: Read) -> Any:
        match self.kind:
            case "equals":
                return value
            case "type":
                return name_of_type(type(value))
            case "length":
                return len(value) if hasattr(value, "__len__") else None
            case "keys":
                return list(value) if isinstance(value, Mapping) else None
            case "has" | "lacks":
                return self.expected if hasattr(value, self.expected) == (self.kind == "has") else None
            case "inherits":
                return self.expected if self.expected not in getattr(value, "__dict__", ()) else None
            case "named":
                return _full_name(value)
            case "tensor":
                return form_of_tensor(value, self.expected[2]) if isinstance(value, torch.Tensor) else None
            case "same":
                try:
                    return self.expected if read(parse(self.expected)) is value else None
                except (LookupError, AttributeError, TypeError):
                    return None
        raise CacheError(f"unknown kind of condition: {self.kind!r}")

    def to_data(self) -> list[Any]:
        return [self.kind, self.path.text, value_to(self.expected)]

    @classmethod
    def from_data(cls, data: Sequence[Any]) -> Condition:
        kind, path, expected = data
        if kind not in _KINDS:
            raise CacheError(f"unknown kind of condition: {kind!r}")
        return cls(kind, parse(path), value_from(expected, {}))


def form_of_tensor(tensor: torch.Tensor, like: Sequence[int | None]) -> list[Any]:
    """dtype, device and sizes, without those that are None in `like`."""
    sizes: list[int | None] = list(tensor.shape)
    if len(sizes) == len(like):
        sizes = [None if known is None else size for size, known in zip(sizes, like, strict=True)]
    return [tensor.dtype, tensor.device, sizes]


def name_of_type(type_: type) -> str:
    return f"{type_.__module__}.{type_.__qualname__}"


def _full_name(code: Any) -> str:
    if isinstance(code, types.ModuleType):
        return code.__name__
    name = f"{getattr(code, '__module__', '')}.{getattr(code, '__qualname__', type(code).__qualname__)}"
    return f"{name}:{code.__code__.co_firstlineno}" if "<" in name and hasattr(code, "__code__") else name


def conditions_of(guards: Sequence[Any], read: Read) -> list[Condition]:
    """The conditions that stand for Dynamo's guards (`GuardFilterEntry`s) and hold now.

    Raises Unwritable where a guard on an argument cannot be written down.
    """
    found: dict[tuple[str, str, str], Condition] = {}
    for guard in guards:
        for condition in _conditions(guard, read):
            found[condition.kind, condition.path.text, repr(condition.expected)] = condition
    return list(found.values())


def _conditions(guard: Any, read: Read) -> list[Condition]:
    text = guard.orig_guard.name
    # A property since torch 2.12, a method before; drop the call when 2.11 is no longer supported.
    text = text() if callable(text) else text
    if guard.guard_type in _ELSEWHERE or not text:
        return []
    try:
        if text.endswith(_CLASS):
            path = resolve(text.removesuffix(_CLASS), read)
            return [] if path.is_global else [_of_type(path, read(path))]
        path = resolve(text, read)
        value = read(path)
    except (UnsupportedPath, LookupError, AttributeError, TypeError) as error:
        # What is reached through a class or a module is code, or data beside it in the same file; a key of a dict is
        # guarded with the dict.
        if "L[" not in text or "type(" in text or f"{_CLASS}." in text or text.startswith("list(dict.keys("):
            return []
        raise Unwritable(f"a guard on {text}, of which there is no path: {error}") from error
    if path.is_global and (isinstance(value, _CODE) or is_made_by_dynamo(path)):
        # Of code outside the arguments the sources of what was traced decide.
        return []
    made = _made(guard, path, value)
    for condition in made:
        reason = condition.broken(read)
        if reason is not None:
            raise Unwritable(f"a guard on {text} that does not hold after tracing: {reason}")
    return made


def _made(guard: Any, path: SourcePath, value: Any) -> list[Condition]:
    kind = guard.guard_type
    if kind in _OF_VALUES:
        return [_of_value(path, value)]
    if kind in _OF_LENGTHS:
        return [Condition("length", path, len(value))]
    if kind in _OF_KEYS and isinstance(value, Mapping):
        return _of_keys(path, value)
    if kind in _OF_CODE:
        return [Condition("named", path, _full_name(value))]
    if kind == "TYPE_MATCH":
        return [_of_type(path, value)]
    details = getattr(guard.orig_guard.create_fn, "keywords", {})
    if kind == "HASATTR":
        name = details.get("attr")
        return [Condition("has" if hasattr(value, name) else "lacks", path, name)] if isinstance(name, str) else []
    if kind == "NOT_PRESENT_IN_GENERIC_DICT":
        return [Condition("inherits", path, details["attr"])]
    if kind == "DUPLICATE_INPUT":
        other = details.get("source_b")
        return _same(path, other) if not isinstance(value, _CODE) else []
    if path.is_global:
        return []
    raise Unwritable(f"a guard of kind {kind} on {path.text}")


def _of_keys(path: SourcePath, value: Mapping[Any, Any]) -> list[Condition]:
    """Which keys a mapping has and lacks follows from all its keys."""
    if all(isinstance(key, (str, int)) for key in value):
        return [Condition("keys", path, list(value))]
    if path.is_global:
        return []
    raise Unwritable(f"{path.text} has keys that are neither text nor integers")


def _of_value(path: SourcePath, value: Any) -> Condition:
    if isinstance(value, tuple) and all(type(item) in _CONSTANTS for item in value):
        return Condition("equals", path, value)
    if type(value) in _CONSTANTS:
        return Condition("equals", path, value)
    return Condition("named", path, _full_name(value)) if isinstance(value, _CODE) else _of_type(path, value)


def _of_type(path: SourcePath, value: Any) -> Condition:
    return Condition("type", path, name_of_type(type(value)))


def _same(path: SourcePath, other: Any) -> list[Condition]:
    name = getattr(other, "name", None)
    text = name() if callable(name) else name
    try:
        parse(str(text))
    except UnsupportedPath:
        if path.is_global:
            return []
        raise
    return [Condition("same", path, str(text))]
