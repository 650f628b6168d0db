"""From Dynamo's guards to those that are written into a file."""

from __future__ import annotations

import enum
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from airgraph.cache.checking.scope import Roots
from airgraph.cache.format.guard import Guard, Read
from airgraph.cache.format.guards import (
    CONSTANTS,
    Apart,
    Contains,
    Distinct,
    Elements,
    Equals,
    Excludes,
    Group,
    Has,
    Inherits,
    Keys,
    Lacks,
    Length,
    Member,
    Named,
    OfClass,
    Same,
    Wraps,
    has_attribute,
    name_of_type,
)
from airgraph.cache.format.source_path import SourcePath, is_made_by_dynamo, parse, resolve
from airgraph.errors import UnsupportedPath, Unwritable
from airgraph.program.code_identity import CODE, identity_of, is_code, with_metaclasses
from airgraph.program.collectives import name_and_ranks
from airgraph.torch_internals.dynamo_sources import attribute_asked_for, details_of, name_of_source, path_of_guard
from airgraph.torch_internals.dynamo_texts import is_guarded_elsewhere
from airgraph.torch_internals.fake_tensors import is_traceable_wrapper_subclass
from airgraph.torch_internals.members import AUTOCAST_SETTINGS

__all__ = ["absence_of", "apart_from_changed", "distinct_of", "guards_of", "modules_of"]

_CLASS = ".__class__"
_OF_VALUES = {"CONSTANT_MATCH", "EQUALS_MATCH", "BOOL_MATCH", "NONE_MATCH", "ID_MATCH"}
_OF_LENGTHS = {"SEQUENCE_LENGTH", "EMPTY_NN_MODULE_HOOKS_DICT"}
_OF_KEYS = {"DICT_KEYS_MATCH", "MAPPING_KEYS_CHECK", "DICT_CONTAINS", "DICT_NOT_CONTAINS"}
_OF_CODE = {"FUNCTION_MATCH", "CLOSURE_MATCH", "CLASS_MATCH", "BUILTIN_MATCH", "MODULE_MATCH"}
# Tensors and sizes are compared by `admission`; global settings by `State`, and a call under another dispatch mode or
# a transform of torch.func is not served; what is left says of objects what other guards say as well.
_ELSEWHERE = {
    "AUTOGRAD_SAVED_TENSORS_HOOKS", "DEFAULT_DEVICE", "DETERMINISTIC_ALGORITHMS", "DUAL_LEVEL", "FSDP_TRAINING_STATE",
    "FUNCTORCH_STACK_MATCH", "GLOBAL_STATE", "GRAD_MODE", "NN_MODULE", "NOT_NONE_MATCH", "SHAPE_ENV", "TENSOR_MATCH",
    "TORCH_FUNCTION_STATE", "WEAKREF_ALIVE",
}  # fmt: skip


def guards_of(guards: Sequence[Any], read: Read) -> list[Guard]:
    """Those that stand for Dynamo's (`GuardFilterEntry`s) and hold now.

    Raises Unwritable where one cannot be written down.
    """
    found: dict[tuple[str, str, str], Guard] = {}
    for guard in guards:
        for each in _written_as(guard, read):
            found[each.kind, each.path.text, repr(each.expected)] = each
    return list(found.values())


def distinct_of(guards: Sequence[Guard], roots: Roots, read: Read) -> list[Guard]:
    """That objects which come by different arguments are not one, where they were not. Dynamo does not guard that."""
    by_class: dict[type, dict[int, SourcePath]] = {}
    for each in guards:
        if isinstance(each, OfClass) and not each.path.is_global and each.path.steps_to_class is None:
            value = read(each.path)
            if not isinstance(value, (*CONSTANTS, *CODE, torch.Tensor, enum.Enum, tuple, frozenset)):
                by_class.setdefault(type(value), {}).setdefault(id(value), each.path)
    found: list[Guard] = []
    for paths in by_class.values():
        ordered = sorted(paths.values(), key=lambda path: path.root not in roots.parameters)
        if ordered[0].root in roots.parameters and len(set(map(roots.argument_of, ordered))) > 1:
            found.append(Distinct(ordered[0], [path.text for path in ordered[1:]]))
    return found


def apart_from_changed(guards: Sequence[Guard], changed: Sequence[tuple[SourcePath, Any]], read: Read) -> list[Guard]:
    """That objects which the function changes are no others of those it looks at: a change would show there, too."""
    by_class: dict[type, dict[int, SourcePath]] = {}
    for each in guards:
        if isinstance(each, OfClass) and each.path.steps_to_class is None:
            value = read(each.path)
            by_class.setdefault(type(value), {}).setdefault(id(value), each.path)
    found: list[Guard] = []
    told_apart: set[int] = set()
    for path, owner in changed:
        # Each two of them once.
        told_apart.add(id(owner))
        others = [other.text for at, other in by_class.get(type(owner), {}).items() if at not in told_apart]
        if others:
            found.append(Apart(path, others))
    return found


def absence_of(guards: Sequence[Guard], read: Read) -> list[Guard]:
    """That objects have the attributes, and dicts the keys, that they have now, and no others."""
    found = {}
    for each in guards:
        if isinstance(each, OfClass) and each.path.steps_to_class is None:
            value, path = read(each.path), each.path
            if isinstance(value, torch.Tensor):
                # Dynamo writes into it what other traces need not; its state is guarded as a whole.
                continue
            if not isinstance(value, dict):
                value, path = getattr(value, "__dict__", None), parse(f"{path.text}.__dict__")
            if type(value) is dict and all(type(key) in (str, int) for key in value):
                found[path.text] = Keys(path, list(value))
    return list(found.values())


def modules_of(guards: Sequence[Guard], read: Read) -> set[str]:
    """The modules that define the functions and classes that guards are about."""
    found: set[str] = set()
    for each in guards:
        if isinstance(each, (OfClass, Named, Member)):
            value = read(each.path)
            class_ = value if isinstance(value, type) else type(value)
            found |= {str(each.__module__) for each in with_metaclasses(class_)}
            namespace = getattr(value, "__globals__", None)
            if isinstance(namespace, dict):
                found.add(str(namespace.get("__name__")))
    return found


def _written_as(guard: Any, read: Read) -> list[Guard]:
    text = path_of_guard(guard)
    # The key of a dict at a position is guarded with the dict; function modes are part of `State`.
    if guard.guard_type in _ELSEWHERE or not text or is_guarded_elsewhere(text):
        return []
    # The names of a wrapper's parts are part of its form.
    if is_made_by_dynamo(text) or _is_of_environment(text, read) or text.endswith(".__tensor_flatten__()[0]"):
        return []
    try:
        if text.endswith(_CLASS):
            path = resolve(text.removesuffix(_CLASS), read)
            made: list[Guard] = [OfClass.of(path, read(path))]
        elif guard.guard_type == "HASATTR":
            owner, attribute = attribute_asked_for(guard)
            path = resolve(owner, read)
            made = [_has_or_lacks(path, read(path), attribute)]
        else:
            path = resolve(text, read)
            made = _made(guard, path, read(path))
    except (UnsupportedPath, LookupError, AttributeError, TypeError) as error:
        raise Unwritable(f"a guard ({guard.guard_type}) on {text}: {error}") from error
    for each in made:
        reason = each.broken(read)
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


def _made(guard: Any, path: SourcePath, value: Any) -> list[Guard]:
    kind = guard.guard_type
    details = details_of(guard)
    if kind in _OF_VALUES:
        if isinstance(value, torch.amp.autocast_mode.autocast):
            return _of_autocast(path, value)
        made = _of_value(path, value)
        return [OfClass.of(path, value), made] if isinstance(made, Elements) else [made]
    if kind == "TENSOR_SUBCLASS_METADATA_MATCH":
        return [OfClass.of(path, value), Wraps.of(path, value), *_of_wrapped(path, value)]
    if kind in _OF_LENGTHS:
        if kind == "EMPTY_NN_MODULE_HOOKS_DICT":
            # Looked at for being empty only.
            return [Length(path, len(value))]
        if isinstance(value, OrderedDict) and len(value) > 1 and _are_writable(value):
            # What Dynamo traced depends on the order, a module's hooks for one; it compares no more than their number.
            return [OfClass.of(path, value), Keys(path, list(value))]
        return [OfClass.of(path, value), Length(path, len(value))]
    if kind in _OF_KEYS and isinstance(value, Mapping):
        return _of_keys(path, value, details.get("key"), kind)
    if kind in _OF_CODE and is_code(value):
        return [Named(path, identity_of(value))]
    if kind == "TYPE_MATCH" and isinstance(value, torch.nn.Module):
        # Dynamo takes it that a class's forward stays what it is.
        forward = parse(f"type({path.text}).forward")
        return [OfClass.of(path, value), Named(forward, identity_of(type(value).forward))]
    if kind == "TYPE_MATCH":
        return [OfClass.of(path, value)]
    if kind == "NOT_PRESENT_IN_GENERIC_DICT":
        return [Inherits(path, details["attr"])]
    if kind in ("SET_CONTAINS", "SET_NOT_CONTAINS") and type(details["key"]) in CONSTANTS:
        return [(Contains if kind == "SET_CONTAINS" else Excludes)(path, details["key"])]
    if kind in ("FAKE_SCRIPT_TYPE_MATCH", "OPAQUE_OBJ_GUARD_FN_MATCH") and name_and_ranks(value) is not None:
        return [Group(path, name_and_ranks(value))]
    if kind == "DUPLICATE_INPUT":
        # Modules and functions have an identity of their own.
        return [] if is_code(value) else [Same(path, _parseable(name_of_source(details["source_b"])))]
    raise Unwritable(f"a guard of kind {kind} on {path.text}")


def _has_or_lacks(path: SourcePath, value: Any, name: str) -> Guard:
    return (Has if has_attribute(value, name) else Lacks)(path, name)


def _of_wrapped(path: SourcePath, wrapper: Any) -> Iterator[Guard]:
    """The classes of the wrappers that a tensor of a wrapping subclass is made of."""
    for name in wrapper.__tensor_flatten__()[0]:
        part = getattr(wrapper, name)
        if is_traceable_wrapper_subclass(part):
            inner = parse(f"{path.text}.{name}")
            yield OfClass.of(inner, part)
            yield from _of_wrapped(inner, part)


def _of_keys(path: SourcePath, value: Mapping[Any, Any], key: Any, kind: str) -> list[Guard]:
    """Which keys a mapping has and lacks follows from all its keys, where they can be written."""
    if _are_writable(value):
        return [OfClass.of(path, value), Keys(path, list(value))]
    if kind in ("DICT_CONTAINS", "DICT_NOT_CONTAINS") and type(key) in CONSTANTS:
        return [(Contains if kind == "DICT_CONTAINS" else Excludes)(path, key)]
    raise Unwritable(f"{path.text} has keys that are neither text nor integers")


def _are_writable(keys: Iterable[Any]) -> bool:
    return all(type(each) in (str, int) for each in keys)


def _of_value(path: SourcePath, value: Any) -> Guard:
    if type(value) in CONSTANTS or (type(value) is tuple and all(type(item) in CONSTANTS for item in value)):
        return Equals(path, value)
    if isinstance(value, enum.Enum):
        return Member.of(path, value)
    if is_code(value):
        return Named(path, identity_of(value))
    if isinstance(value, (set, frozenset)) and all(type(each) in CONSTANTS for each in value):
        return Elements(path, list(value))
    raise Unwritable(f"{path.text} is an object of type {name_of_type(type(value))} that was compared by identity")


def _of_autocast(path: SourcePath, value: torch.amp.autocast_mode.autocast) -> list[Guard]:
    """Of one that decorates what is traced."""
    made = [_of_value(parse(f"{path.text}.{name}"), getattr(value, name)) for name in AUTOCAST_SETTINGS]
    return [OfClass.of(path, value), *made]


def _parseable(text: str) -> str:
    parse(text)
    return text
