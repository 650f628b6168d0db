"""Notices whether objects that were read once are still where they were: the same objects in the same containers."""

from __future__ import annotations

import builtins
import contextlib
import os
import threading
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch

from airgraph.cache.format.source_path import Attribute, Item, Size, SourcePath, Step, TypeOf, global_root
from airgraph.program.code_identity import (
    behaviour_of,
    digest_of_code,
    goes_by_version,
    is_versioned_class,
    with_metaclasses,
)
from airgraph.program.tensor_parts import holds_others, is_container
from airgraph.runtime.engine.loading import engine
from airgraph.torch_internals.fake_tensors import is_traceable_wrapper_subclass
from airgraph.torch_internals.members import MODULE_NAMESPACES
from airgraph.torch_internals.settings import forward_hooks_of_all_modules

__all__ = ["Watch"]

# Py_TPFLAGS_HEAPTYPE: the class of a class statement.
_HEAP_TYPE = 1 << 9
_OF_CLASS = (TypeOf(), Attribute("__class__"))
_REPLACEABLE = ("__code__", "__defaults__", "__kwdefaults__")
_READ_ONLY = ((property, ("fget", "fset", "fdel")), (types.FunctionType, ("__closure__",)))


class Watch:
    """Remembers the steps of paths; `changed()` compares identities, nothing is computed.

    Not seen: the replacement of an object's whole `__dict__`, what a property or `__getitem__` of one's own computes
    from other state, and values inside tensors.
    """

    def __init__(self, function_globals: Mapping[str, Any], codes: Collection[str]) -> None:
        """codes: digests of the code that took part in tracing; what other functions do does not matter."""
        self._globals = function_globals
        self._codes = codes
        self._items: dict[tuple[int, Any], tuple[Any, Any, Any]] = {}
        self._attributes: dict[tuple[int, str], tuple[Any, str, Any]] = {}
        self._keys: dict[int, tuple[Any, tuple[Any, ...]]] = {}
        self._lengths: dict[int, tuple[Any, int]] = {}
        self._absent: dict[tuple[int, Any], tuple[dict[Any, Any], Any]] = {}
        self._cells: dict[int, tuple[types.CellType, Any]] = {}
        self._types: dict[int, tuple[Any, type]] = {}
        self._class_items: dict[tuple[int, str], tuple[type, str, Any]] = {}
        self._class_absent: dict[tuple[int, str], tuple[type, str]] = {}
        self._functions: dict[int, types.FunctionType] = {}
        self._whole_classes: dict[int, tuple[type, Callable[[], bool]]] = {}
        # Whether a step since `add` began gives another object at each look, so that it cannot be watched.
        self.is_blind = False

    def add(self, path: SourcePath, roots: Mapping[str, Any]) -> Any:
        """Watches all steps of a path and returns the value there. Raises as reading it does."""
        self.is_blind = False
        if path.is_global:
            namespace, owner = global_root(path.root, self._globals)
            if isinstance(namespace, dict):
                self._items[id(namespace), path.root] = (namespace, path.root, owner)
        else:
            owner = roots[path.root]
        return self.follow(owner, path.steps)

    def follow(self, owner: Any, steps: Sequence[Step]) -> Any:
        """The same from an object on."""
        class_: type | None = None
        holder: Any = None
        for step in steps:
            value = step.read(owner)
            if isinstance(owner, types.MappingProxyType) and class_ is not None and isinstance(step, Item):
                self._class_items[id(class_), str(step.key)] = (class_, str(step.key), value)
            elif step in _OF_CLASS:
                self._add_type(owner)
            elif isinstance(step, Attribute):
                self._add_attribute(owner, step.name, value)
            elif isinstance(step, Item) and not isinstance(owner, tuple):
                self._items[id(owner), step.key] = (owner, step.key, value)
                self.is_blind = self.is_blind or step.read(owner) is not value
                self._add_not_hidden(holder, owner, step.key)
            elif isinstance(step, Size):
                # Read at each call.
                return value
            class_ = owner if isinstance(owner, type) else None
            holder, owner = owner, value
        return owner

    def _add_not_hidden(self, module: Any, namespace: Any, name: Any) -> None:
        """Watches that a module has nothing of its own by the name of a parameter, buffer or module: it comes first.

        Raises AttributeError where it has.
        """
        held = vars(module) if isinstance(module, torch.nn.Module) else {}
        if any(held.get(each) is namespace for each in MODULE_NAMESPACES):
            if name in held:
                raise AttributeError(f"{type(module).__name__} has an attribute {name!r} beside what it registered so")
            self._absent[id(held), name] = (held, name)

    def _add_attribute(self, owner: Any, name: str, value: Any) -> None:
        if isinstance(owner, threading.local):
            # Another one in each thread, and a graph is for all of them.
            self.is_blind = True
            return
        if any(isinstance(owner, class_) and name in names for class_, names in _READ_ONLY):
            # It can only be replaced with its owner.
            return
        if isinstance(owner, types.FunctionType) and name in _REPLACEABLE:
            self._functions[id(owner)] = owner
            return
        if isinstance(owner, types.CellType):
            self._cells[id(owner)] = (owner, value)
            return
        held = getattr(owner, "__dict__", None)
        if name == "__dict__" and held is value:
            # What is in it is watched, and that it is the object's with its class.
            self._types[id(owner)] = (owner, type(owner))
            return
        if isinstance(held, dict) and held.get(name, self) is value:
            self._items[id(held), name] = (held, name, value)
        elif isinstance(value, types.MappingProxyType):
            # A class's namespace is a new object at each look, and always shows what is in the class now.
            return
        elif getattr(owner, name, self) is value:
            self._attributes[id(owner), name] = (owner, name, value)
        else:
            self.is_blind = True

    def add_keys(self, value: Any) -> None:
        """Watches the keys of a dict, or the elements of a set, with their order."""
        self._keys[id(value)] = (value, tuple(value))

    def add_length(self, value: Any) -> None:
        self._lengths[id(value)] = (value, len(value))

    def add_absent(self, value: Any, name: str, *, in_class: bool) -> None:
        """Watches that an object has no attribute of its own; in_class: its class neither."""
        for namespace in _namespaces(value):
            if name not in namespace:
                self._absent[id(namespace), name] = (namespace, name)
        if not in_class:
            return
        for class_ in [value, type(value)] if isinstance(value, type) else [type(value)]:
            if hasattr(class_, name):
                # A slot that holds nothing, a property that finds nothing, or what classes have and their objects do
                # not: asked anew at each call.
                self.is_blind = True
            else:
                self._class_absent[id(class_), name] = (class_, name)

    def add_present(self, value: Any, name: str) -> None:
        """Watches an attribute where it is: of the object, or of its class."""
        holder = next((each for each in _namespaces(value) if name in each), None)
        if isinstance(value, type):
            self._add_attribute(value, name, getattr(value, name, self))
        elif holder is not None:
            self._items[id(holder), name] = (holder, name, holder[name])
        else:
            self._add_attribute(type(value), name, getattr(type(value), name, self))

    def add_attributes(self, value: Any) -> None:
        """Watches all that an object holds of its own, and what containers and wrappers of tensors in it hold."""
        if holds_others(value):
            # Whose state nobody knows: asked anew at each call.
            self.is_blind = True
        held = value if isinstance(value, dict) else getattr(value, "__dict__", None)
        if isinstance(held, dict):
            self._add_type(value)
            self.add_keys(held)
            each_held: Iterable[tuple[Any, Any]] = held.items()
        elif isinstance(value, (list, tuple)):
            held = value
            self.add_length(value)
            each_held = enumerate(value)
        else:
            # A dataclass with slots.
            each_held = [(field.name, getattr(value, field.name)) for field in fields(value)]
            for name, inner in each_held:
                self._attributes[id(value), name] = (value, name, inner)
        for key, inner in each_held:
            if isinstance(held, (dict, list)):
                self._items[id(held), key] = (held, key, inner)
            if is_container(inner) or is_traceable_wrapper_subclass(inner):
                self.add_attributes(inner)

    def add_type(self, value: Any) -> None:
        """Watches an object's class, and all that this does."""
        self._add_type(value)
        self.add_class(type(value))

    def _add_type(self, value: Any) -> None:
        # Objects of built-in types keep them, but for modules.
        if type(value).__flags__ & _HEAP_TYPE or isinstance(value, types.ModuleType):
            self._types[id(value)] = (value, type(value))

    def add_class(self, class_: type) -> None:
        """Watches all that a class and its bases do; their data is watched where it was read."""
        if id(class_) in self._whole_classes or is_versioned_class(class_):
            return
        behaviour = behaviour_of(class_)
        self._whole_classes[id(class_)] = (class_, lambda: behaviour_of(class_) == behaviour)
        for each in with_metaclasses(class_):
            if not is_versioned_class(each):
                if not issubclass(class_, each):
                    # The version of a class says nothing of its metaclass.
                    self.add_class(each)
                if issubclass(each, type):
                    # Dynamo takes for constants what classes find there.
                    self._add_items_of(each)
                for member in vars(each).values():
                    self._add_function(getattr(member, "__func__", member))

    def _add_items_of(self, class_: type) -> None:
        for name, member in vars(class_).items():
            if not (name.startswith("__") or isinstance(member, types.FunctionType)):
                self._class_items[id(class_), name] = (class_, name, member)

    def add_builtins(self, names: Iterable[str]) -> None:
        """Watches functions that code finds in every module."""
        held = vars(builtins)
        for name in names:
            self._items[id(held), name] = (held, name, held.get(name))

    def add_hooks_of_all_modules(self) -> None:
        for held in forward_hooks_of_all_modules():
            self.add_keys(held)

    def add_not_global(self, names: Iterable[tuple[Mapping[str, Any], str]]) -> None:
        """Watches that modules have no global of a name, which would come before Python's own function."""
        for held, name in names:
            if isinstance(held, dict):
                self._absent[id(held), name] = (held, name)

    def add_environment(self, names: Iterable[str]) -> None:
        """Watches variables of the environment, as `os.environ` has them."""
        held: dict[Any, Any] = os.environ._data  # type: ignore[attr-defined]
        for name in names:
            key = os.environ.encodekey(name)
            if key in held:
                self._items[id(held), key] = (held, key, held[key])
            else:
                self._absent[id(held), key] = (held, key)

    def add_code(self, value: Any) -> None:
        """Watches what a function or a class does."""
        if isinstance(value, type):
            self.add_class(value)
        elif isinstance(value, types.MethodType):
            self._add_function(value.__func__)
        else:
            self._add_function(value)

    def _add_function(self, function: Any) -> None:
        """Watches the code of a function, of those it was decorated with, and of those that it closes over."""
        if not isinstance(function, types.FunctionType) or id(function) in self._functions:
            return
        if goes_by_version(function.__globals__.get("__name__")):
            return
        if digest_of_code(function.__code__) in self._codes:
            self._functions[id(function)] = function
            for name, value in (function.__kwdefaults__ or {}).items():
                self._items[id(function.__kwdefaults__), name] = (function.__kwdefaults__, name, value)
        for cell in function.__closure__ or ():
            with contextlib.suppress(ValueError):
                self._add_function(cell.cell_contents)

    def compile(self) -> Any:
        """Its `changed` says whether anything did."""
        watch = engine().Watch()
        for add, watched in (
            (watch.add_item, self._items),
            (watch.add_length, self._lengths),
            (watch.add_absent, self._absent),
            (watch.add_keys, self._keys),
            (watch.add_attribute, self._attributes),
            (watch.add_type, self._types),
            (watch.add_class_item, self._class_items),
            (watch.add_class_absent, self._class_absent),
            (watch.add_class, self._whole_classes),
            (watch.add_cell, self._cells),
        ):
            for each in watched.values():
                add(*each)
        for function in self._functions.values():
            watch.add_function(function)
        return watch


def _namespaces(value: Any) -> list[dict[str, Any]]:
    """Where an object's own attributes may be."""
    found = [getattr(value, "__dict__", None)]
    if isinstance(value, torch.nn.Module):
        found += [value.__dict__.get(name) for name in MODULE_NAMESPACES]
    return [namespace for namespace in found if isinstance(namespace, dict)]
