"""What a traced function changes in Python objects.

Dynamo collects the changes while it traces and makes them after the graph. A cached call makes the same: attributes of
the function's arguments that get tensors of the graph's outputs, constants, or numbers that follow from sizes. While a
graph is traced for the cache, Dynamo writes stand-ins, which are read and set back at once. Of a plain dict constants
that become its items are written likewise. No other change is cached.

A value that is written but is there already, such as a flag that was set and set back, is no change as long as it is
there: this becomes a guard.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from airgraph.cache.format.guard import Guard, Read
from airgraph.cache.format.guards import CONSTANTS, Equals, OfClass
from airgraph.cache.format.source_path import Attribute, Item, SourcePath, parse, resolve
from airgraph.errors import Unwritable
from airgraph.torch_internals import dynamo_variables as variables
from airgraph.torch_internals.dynamo_sources import name_of_source, source_of_variable
from airgraph.torch_internals.members import MODULE_NAMESPACES

_MISSING = object()

__all__ = ["Change", "Changes", "changes_of", "why_no_item", "why_not_written"]


@dataclass(frozen=True, slots=True)
class Change:
    """An attribute of an object, or an item of a dict, that a function writes. value: Dynamo's variable."""

    owner: SourcePath
    object: Any
    step: Attribute | Item
    value: Any


@dataclass(frozen=True, slots=True)
class Changes:
    """guards: that what is written there is there. writes: the others. touched: what Dynamo writes and a call need not,
    an object and the name of its attribute, or a dict and None. of_call: the path of the dict of the call's keywords,
    which nobody else has, where it is changed."""

    guards: tuple[Guard, ...] = ()
    writes: tuple[Change, ...] = ()
    touched: tuple[tuple[Any, str | None], ...] = ()
    of_call: str | None = None

    @property
    def owners(self) -> list[tuple[SourcePath, Any]]:
        """What is changed, each once, by path."""
        found = {id(each.object): (each.owner, each.object) for each in self.writes}
        return list(found.values())


def changes_of(tx: Any, read: Read, keywords: str | None = None) -> Changes:
    """What a function has changed when it ends. Call inside a backend.

    tx: Dynamo's current translator. keywords: the parameter that takes a call's further keywords. Raises Unwritable for
    changes that a cached call cannot make.
    """
    effects = variables.effects_of(tx)
    if variables.sets_hooks(effects):
        raise Unwritable("the function registers hooks on tensors or saves them for backward")
    guards: list[Guard] = []
    writes: list[Change] = []
    touched: list[tuple[Any, str | None]] = []
    of_call = None
    for variable in variables.modified_variables(effects):
        if variables.is_made_within(variable):
            # Of an object that the function itself has made, and that is in the result or gone.
            if variables.written_attributes(effects, variable) and issubclass(
                variables.type_of(variable), (tuple, torch.Tensor)
            ):
                raise Unwritable(
                    f"the function sets attributes of a {variables.type_of(variable).__name__} that it makes"
                )
            continue
        source = source_of_variable(variable)
        name = name_of_source(source) if source is not None else f"a {variables.kind_of(variable)}"
        if keywords is not None and name == f"L['{keywords}']":
            of_call = name
            touched.append((read(resolve(name, read)), None))
            continue
        items = variables.written_items(variable) if source is not None else None
        if items is not None:
            found = _changed_items(resolve(name, read), items, read)
            guards += found.guards
            writes += found.writes
            touched += found.touched
            continue
        if source is None or not variables.sets_attributes(variable):
            raise Unwritable(f"the function changes {name}")
        written = variables.written_attributes(effects, variable)
        if not written or issubclass(variables.type_of(variable), (dict, list, set, collections.deque)):
            raise Unwritable(f"the function changes {name}")
        owner = resolve(name, read)
        held = read(owner)
        for attribute, value in written.items():
            if variables.path_of_what_is_written(value) == f"{name}.{attribute}":
                touched.append((held, attribute))
                continue
            constant = variables.constant_of(value)
            if type(constant) in CONSTANTS:
                guard = _has_already(held, name, attribute, constant, read)
                if guard is not None:
                    guards.append(guard)
                    continue
            reason = why_not_written(owner, held, attribute, is_tensor=variables.is_tensor(value))
            if reason is not None:
                raise Unwritable(f"the function changes {name}.{attribute}, {reason}")
            guards.append(OfClass.of(owner, held))
            writes.append(Change(owner, held, Attribute(attribute), value))
    return Changes(tuple(guards), tuple(writes), tuple(touched), of_call)


def _changed_items(owner: SourcePath, items: Mapping[Any, Any], read: Read) -> Changes:
    """Of a dict. Its keys are guarded by Dynamo where the function depends on them."""
    held = read(owner)
    guards: list[Guard] = [OfClass.of(owner, held)]
    writes: list[Change] = []
    touched: list[tuple[Any, str | None]] = []
    for key, value in items.items():
        if variables.path_of_what_is_written(value) == f"{owner.text}[{key!r}]":
            # The tensor that is there, which the graph writes.
            touched.append((held, None))
            continue
        constant = variables.constant_of(value)
        reason = why_no_item(owner, held, key)
        if reason is None and type(constant) not in CONSTANTS:
            reason = "which gets something that is no constant"
        if reason is not None:
            raise Unwritable(f"the function changes {owner.text}[{key!r}], {reason}")
        now = held.get(key, _MISSING)
        guard = None
        if type(now) is type(constant) and now == constant:
            guard = Equals(parse(f"{owner.text}[{key!r}]"), constant)
        # 0.0 is not -0.0.
        if guard is not None and guard.broken(read) is None:
            guards.append(guard)
        else:
            writes.append(Change(owner, held, Item(key), value))
    return Changes(tuple(guards), tuple(writes), tuple(touched))


def _has_already(held: Any, name: str, attribute: str, value: Any, read: Read) -> Guard | None:
    """That an object has this constant itself, where it has it now. What its class has is not its own."""
    namespace = getattr(held, "__dict__", None)
    if isinstance(namespace, dict) and attribute not in namespace:
        return None
    own = f".__dict__['{attribute}']" if isinstance(namespace, dict) else f".{attribute}"
    guard = Equals(resolve(f"{name}{own}", read), value)
    return guard if guard.broken(read) is None else None


def why_no_item(path: SourcePath, owner: Any, key: Any) -> str | None:
    """Why writing an item may do more than that, in words, or None."""
    if path.is_global:
        return "which is outside its arguments"
    if type(owner) is not dict:
        return f"of a {type(owner).__name__}"
    return None if type(key) in (int, str) else "whose key is neither text nor an integer"


def why_not_written(path: SourcePath, owner: Any, attribute: str, *, is_tensor: bool) -> str | None:
    """Why writing an attribute may do more than that, or changes what a trace depends on, in words, or None."""
    class_ = type(owner)
    is_module = isinstance(owner, torch.nn.Module)
    if path.is_global:
        return "which is outside its arguments"
    if isinstance(owner, (type, types.ModuleType, types.FunctionType)):
        return f"of a {class_.__name__}"
    set_by: Any = class_.__setattr__
    read_by: Any = class_.__getattribute__
    plain: Any = torch.nn.Module.__setattr__ if is_module else object.__setattr__
    if set_by is not plain or read_by is not object.__getattribute__:
        return "whose class has its own way to set attributes"
    if is_module and is_tensor:
        return "of a module, which would be another one then"
    if is_module and any(attribute in vars(owner)[held] for held in MODULE_NAMESPACES):
        return "which is a part of the module"
    defined = next((vars(each)[attribute] for each in class_.__mro__ if attribute in vars(each)), None)
    if hasattr(type(defined), "__set__") and not isinstance(defined, types.MemberDescriptorType):
        return "which is a property"
    if attribute.startswith("__"):
        return "which Python itself uses"
    return None
