"""What a traced graph took for granted about Python values: Dynamo's guards as plain data that can be checked again.

A condition is (kind, path, expected):
- equals: the value is this constant, of the same type; member: of an enum, by its full name and value;
- type: the value's class defines this behaviour; named: a function, class or module of this identity (`code_identity`);
- length: of a container; keys: a dict's keys, in order; elements: of a set, in its order; contains, excludes: one of
  them;
- has, lacks: an attribute of this name; inherits: an attribute of this name, but not of the object's own;
- same: the object at another path is this one; distinct: none of the objects at other paths is, nor one another.
"""

from __future__ import annotations

import enum
import os
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from airgraph.cache.format.graph import value_from, value_to
from airgraph.cache.format.source_path import SourcePath, is_made_by_dynamo, name_of_source, parse, resolve
from airgraph.errors import CacheError, UnsupportedPath, Unwritable
from airgraph.program.code_identity import CODE, behaviour_of, held_text, identity_of, is_code, with_metaclasses

__all__ = [
    "CONSTANTS",
    "Condition",
    "Read",
    "absence_of",
    "conditions_of",
    "distinct_of",
    "modules_of",
    "name_of_type",
    "of_type",
]

# Reads a path; raises LookupError, AttributeError or TypeError where nothing is.
Read = Callable[[SourcePath], Any]

CONSTANTS = (bool, int, float, str, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_TEXT = ("type", "named", "member", "has", "lacks", "inherits", "same")
_LISTS = ("keys", "elements", "distinct")
_KINDS = (*_TEXT, *_LISTS, "equals", "length", "contains", "excludes")
_CLASS = ".__class__"
_OF_VALUES = {"CONSTANT_MATCH", "EQUALS_MATCH", "BOOL_MATCH", "NONE_MATCH", "ID_MATCH"}
_OF_LENGTHS = {"SEQUENCE_LENGTH", "EMPTY_NN_MODULE_HOOKS_DICT"}
_OF_KEYS = {"DICT_KEYS_MATCH", "MAPPING_KEYS_CHECK", "DICT_CONTAINS", "DICT_NOT_CONTAINS"}
_OF_CODE = {"FUNCTION_MATCH", "CLOSURE_MATCH", "CLASS_MATCH", "BUILTIN_MATCH", "MODULE_MATCH"}
# Tensors and sizes are compared by `admission`; global settings by `State`, and a call under another dispatch mode or
# a transform of torch.func is not served; what is left says of objects what other conditions say as well.
_ELSEWHERE = {
    "AUTOGRAD_SAVED_TENSORS_HOOKS", "DEFAULT_DEVICE", "DETERMINISTIC_ALGORITHMS", "DUAL_LEVEL", "FSDP_TRAINING_STATE",
    "FUNCTORCH_STACK_MATCH", "GLOBAL_STATE", "GRAD_MODE", "NN_MODULE", "NOT_NONE_MATCH", "SHAPE_ENV", "TENSOR_MATCH",
    "TORCH_FUNCTION_STATE", "WEAKREF_ALIVE",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Condition:
    """kind and expected: see the module."""

    kind: str
    path: SourcePath
    expected: Any

    def broken(self, read: Read) -> str | None:
        """Why it does not hold, in words, or None."""
        try:
            value = read(self.path)
            found = self._found(value, read)
        except (LookupError, AttributeError, TypeError):
            return f"{self.path.text} is missing"
        if _is_equal(found, self.expected):
            return None
        if self.kind == "same":
            return f"{self.path.text} is not the same object as {self.expected} any more"
        return f"{self.kind} of {self.path.text}: expected {self.expected!r}, got {found!r}"

    def _found(self, value: Any, read: Read) -> Any:
        match self.kind:
            case "equals":
                return value
            case "type":
                return behaviour_of(type(value))
            case "named":
                return identity_of(value)
            case "member":
                return _name_of_member(value)
            case "length":
                return len(value)
            case "keys":
                return list(value)
            case "elements":
                return list(value)
            case "contains" | "excludes":
                return self.expected if (self.expected in value) == (self.kind == "contains") else None
            case "has" | "lacks":
                return self.expected if _has(value, self.expected) == (self.kind == "has") else None
            case "inherits":
                return self.expected if self.expected not in vars(value) else None
            case "same":
                return self.expected if read(parse(self.expected)) is value else None
            case "distinct":
                values = [value, *(read(parse(text)) for text in self.expected)]
                return self.expected if len(set(map(id, values))) == len(values) else None
        raise CacheError(f"unknown kind of condition: {self.kind!r}")

    def to_data(self) -> list[Any]:
        return [self.kind, self.path.text, value_to(self.expected)]

    @classmethod
    def from_data(cls, data: Sequence[Any]) -> Condition:
        kind, path, expected = data[0], parse(data[1]), value_from(data[2], {})
        if kind not in _KINDS:
            raise CacheError(f"unknown kind of condition: {kind!r}")
        if (kind in _TEXT and type(expected) is not str) or (kind in _LISTS and type(expected) is not list):
            raise CacheError(f"condition {kind!r} of {path.text}: unexpected {expected!r}")
        return cls(kind, path, expected)


def _has(value: Any, name: str) -> bool:
    # A module that is asked for more than it has may import something.
    return name in vars(value) if isinstance(value, types.ModuleType) else hasattr(value, name)


def _is_equal(a: Any, b: Any) -> bool:
    """0.0 and -0.0 differ, and so do (1,) and (True,)."""
    by_text = isinstance(a, (float, complex, tuple, list))
    return type(a) is type(b) and (repr(a) == repr(b) if by_text else bool(a == b))


def name_of_type(type_: type) -> str:
    return f"{type_.__module__}.{type_.__qualname__}"


def conditions_of(guards: Sequence[Any], read: Read) -> list[Condition]:
    """The conditions that stand for Dynamo's guards (`GuardFilterEntry`s) and hold now.

    Raises Unwritable where a guard cannot be written down.
    """
    found: dict[tuple[str, str, str], Condition] = {}
    for guard in guards:
        for condition in _conditions(guard, read):
            found[condition.kind, condition.path.text, repr(condition.expected)] = condition
    return list(found.values())


def distinct_of(conditions: Sequence[Condition], of_call: Collection[str], read: Read) -> list[Condition]:
    """That objects which come by different arguments are not one, where they were not. Dynamo does not guard that.

    of_call: the parameters whose values come with the call.
    """
    by_class: dict[type, dict[int, SourcePath]] = {}
    for condition in conditions:
        if condition.kind == "type" and not condition.path.is_global and condition.path.steps_to_class is None:
            value = read(condition.path)
            if not isinstance(value, (*CONSTANTS, *CODE, torch.Tensor, enum.Enum, tuple, frozenset)):
                by_class.setdefault(type(value), {}).setdefault(id(value), condition.path)
    found = []
    for paths in by_class.values():
        ordered = sorted(paths.values(), key=lambda path: path.root not in of_call)
        if ordered[0].root in of_call and len({path.root for path in ordered}) > 1:
            found.append(Condition("distinct", ordered[0], [path.text for path in ordered[1:]]))
    return found


def absence_of(conditions: Sequence[Condition], read: Read) -> list[Condition]:
    """That objects have the attributes, and dicts the keys, that they have now, and no others."""
    found = {}
    for condition in conditions:
        if condition.kind == "type" and condition.path.steps_to_class is None:
            value, path = read(condition.path), condition.path
            if not isinstance(value, dict):
                value, path = getattr(value, "__dict__", None), parse(f"{path.text}.__dict__")
            if type(value) is dict and all(type(key) in (str, int) for key in value):
                found[path.text] = Condition("keys", path, list(value))
    return list(found.values())


def modules_of(conditions: Sequence[Condition], read: Read) -> set[str]:
    """The modules that define the functions and classes that conditions are about."""
    found: set[str] = set()
    for condition in conditions:
        if condition.kind in ("type", "named", "member"):
            value = read(condition.path)
            class_ = value if isinstance(value, type) else type(value)
            found |= {str(each.__module__) for each in with_metaclasses(class_)}
            namespace = getattr(value, "__globals__", None)
            if isinstance(namespace, dict):
                found.add(str(namespace.get("__name__")))
    return found


def _conditions(guard: Any, read: Read) -> list[Condition]:
    text = name_of_source(guard.orig_guard)
    # The key of a dict at a position is guarded with the dict; function modes are part of `State`.
    if guard.guard_type in _ELSEWHERE or not text or text.startswith(("list(dict.keys(", "___get_torch_function_mode")):
        return []
    if is_made_by_dynamo(text) or _is_of_environment(text, read):
        return []
    try:
        if text.endswith(_CLASS):
            path = resolve(text.removesuffix(_CLASS), read)
            made = [of_type(path, read(path))]
        else:
            path = resolve(text, read)
            made = _made(guard, path, read(path))
    except (UnsupportedPath, LookupError, AttributeError, TypeError) as error:
        raise Unwritable(f"a guard ({guard.guard_type}) on {text}: {error}") from error
    for condition in made:
        reason = condition.broken(read)
        if reason is not None:
            raise Unwritable(f"a guard on {text} that does not hold after tracing: {reason}")
    return made


def _is_of_environment(text: str, read: Read) -> bool:
    """Whether a path leads into `os.environ`, whose variables are compared by `Process`."""
    owner, inside, _ = text.partition("._data[")
    try:
        return bool(inside) and read(parse(owner)) is os.environ
    except (UnsupportedPath, LookupError, AttributeError, TypeError):
        return False


def _made(guard: Any, path: SourcePath, value: Any) -> list[Condition]:
    kind = guard.guard_type
    details = getattr(guard.orig_guard.create_fn, "keywords", {})
    if kind in _OF_VALUES:
        if isinstance(value, torch.amp.autocast_mode.autocast):
            return _of_autocast(path, value)
        made = _of_value(path, value)
        return [of_type(path, value), made] if made.kind == "elements" else [made]
    if kind in _OF_LENGTHS:
        # Those of modules are looked at for being empty only.
        is_hooks = kind == "EMPTY_NN_MODULE_HOOKS_DICT"
        return [*([] if is_hooks else [of_type(path, value)]), Condition("length", path, len(value))]
    if kind in _OF_KEYS and isinstance(value, Mapping):
        return _of_keys(path, value, details.get("key"), kind)
    if kind in _OF_CODE and is_code(value):
        return [Condition("named", path, identity_of(value))]
    if kind == "TYPE_MATCH" and isinstance(value, torch.nn.Module):
        # Dynamo takes it that a class's forward stays what it is.
        forward = parse(f"type({path.text}).forward")
        return [of_type(path, value), Condition("named", forward, identity_of(type(value).forward))]
    if kind == "TYPE_MATCH":
        return [of_type(path, value)]
    if kind == "HASATTR":
        name = details["attr"]
        return [Condition("has" if _has(value, name) else "lacks", path, name)]
    if kind == "NOT_PRESENT_IN_GENERIC_DICT":
        return [Condition("inherits", path, details["attr"])]
    if kind in ("SET_CONTAINS", "SET_NOT_CONTAINS") and type(details["key"]) in CONSTANTS:
        return [Condition("contains" if kind == "SET_CONTAINS" else "excludes", path, details["key"])]
    if kind == "DUPLICATE_INPUT":
        # Modules and functions have an identity of their own.
        return [] if is_code(value) else [Condition("same", path, _parseable(name_of_source(details["source_b"])))]
    raise Unwritable(f"a guard of kind {kind} on {path.text}")


def _of_keys(path: SourcePath, value: Mapping[Any, Any], key: Any, kind: str) -> list[Condition]:
    """Which keys a mapping has and lacks follows from all its keys, where they can be written."""
    if all(type(each) in (str, int) for each in value):
        return [of_type(path, value), Condition("keys", path, list(value))]
    if kind in ("DICT_CONTAINS", "DICT_NOT_CONTAINS") and type(key) in CONSTANTS:
        return [Condition("contains" if kind == "DICT_CONTAINS" else "excludes", path, key)]
    raise Unwritable(f"{path.text} has keys that are neither text nor integers")


def _of_value(path: SourcePath, value: Any) -> Condition:
    if type(value) in CONSTANTS or (type(value) is tuple and all(type(item) in CONSTANTS for item in value)):
        return Condition("equals", path, value)
    if isinstance(value, enum.Enum):
        return Condition("member", path, _name_of_member(value))
    if is_code(value):
        return Condition("named", path, identity_of(value))
    if isinstance(value, (set, frozenset)) and all(type(each) in CONSTANTS for each in value):
        return Condition("elements", path, list(value))
    raise Unwritable(f"{path.text} is an object of type {name_of_type(type(value))} that was compared by identity")


def _of_autocast(path: SourcePath, value: torch.amp.autocast_mode.autocast) -> list[Condition]:
    """Of one that decorates what is traced."""
    settings = ("device", "fast_dtype", "_enabled", "_cache_enabled")
    made = [_of_value(parse(f"{path.text}.{name}"), getattr(value, name)) for name in settings]
    return [of_type(path, value), *made]


def of_type(path: SourcePath, value: Any) -> Condition:
    """That the value at a path is of a class that does what this one does."""
    return Condition("type", path, behaviour_of(type(value)))


def _name_of_member(value: Any) -> str | None:
    return held_text(value) if isinstance(value, enum.Enum) else None


def _parseable(text: str) -> str:
    parse(text)
    return text
