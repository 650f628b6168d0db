"""Turns the paths and guards of a cached graph into one native pass over a call, which collects its arguments.

No text of a cache file is ever compiled: it becomes instructions of `csrc/cache/call_reader.h`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch

from airgraph.cache.checking.scope import Reader, Roots
from airgraph.cache.format.guard import Guard, Read
from airgraph.cache.format.guards import Apart, Distinct, Same, Wraps
from airgraph.cache.format.manifest import CachedInput, Manifest, Traits
from airgraph.cache.format.source_path import Attribute, Item, Size, SourcePath, Step, TypeOf, parse
from airgraph.errors import CacheError
from airgraph.program.inputs import InputRole
from airgraph.runtime.engine.loading import engine
from airgraph.torch_internals.fake_tensors import is_traceable_wrapper_subclass

__all__ = ["build_reader"]

# Without floats: 0.0 equals -0.0.
_CONSTANTS = (bool, int, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_CLASSES: Mapping[str, type] = {"Tensor": torch.Tensor, "Parameter": torch.nn.Parameter}


def build_reader(manifest: Manifest, roots: Roots, read: Reader, taken: Sequence[Any]) -> Any:
    """Its `read` takes the values of the call's parameters and returns the graph's arguments, or None where a condition
    does not hold.

    After the arguments come the tensors and numbers that were only looked at. read: for the classes and functions of
    guards, and for what does not come with the call. taken: of inputs that do not come with the call the tensor or
    number, of a size its tensor, of a float the object that holds it.
    """
    made = _Instructions(roots)
    every = (*manifest.inputs, *manifest.looked_at)
    for guard in manifest.guards:
        if made.comes_with_the_call(guard.path):
            made.require(guard, read)
        elif isinstance(guard, Same) and made.comes_with_the_call(guard.other):
            made.add("is", made.at(guard.other), read(guard.path))
        elif isinstance(guard, (Apart, Distinct)) and any(map(made.comes_with_the_call, guard.others)):
            guard.compile(made, read)
        elif isinstance(guard, Wraps):
            # Its attributes are watched.
            wrapper = read(guard.path)
            made.require_form(made.keep(wrapper), wrapper)
    arguments = list(taken)
    for index, (each, value) in enumerate(zip(every, taken, strict=True)):
        if made.comes_with_the_call(each.path):
            made.take(index, each)
        elif each.is_float:
            # Of an object that stays where it is, or of a variable that is closed over.
            step = each.path.steps[-1] if each.path.steps else Attribute("cell_contents")
            made.add("float", made.keep_step(value, step), index)
            arguments[index] = None
        elif each.path.steps and isinstance(size := each.path.steps[-1], Size):
            # Of a tensor that stays where it is, but may be resized.
            made.add_size(made.keep(value), size, index)
            arguments[index] = None
        elif each.is_tensor:
            made.add("kept", index, *_traits(each))
    tensors = [each for each in every if each.is_tensor and not each.is_float and made.comes_with_the_call(each.path)]
    made.require_distinct(tensors, tuple(value for value in taken if isinstance(value, torch.Tensor)))
    return engine().CallReader(len(roots.parameters), made.instructions, arguments)


def _traits(each: CachedInput) -> tuple[Any, ...]:
    traits = each.traits
    assert isinstance(traits, Traits)
    class_ = _CLASSES.get(traits.class_name)
    if class_ is None:
        raise CacheError(f"{each.path.text} is of a class {traits.class_name!r} that is no plain tensor's")
    return class_, traits.requires_grad, traits.is_leaf, traits.keys


class _Instructions:
    """Under construction; a path that was read once is kept in a slot."""

    def __init__(self, roots: Roots) -> None:
        self.instructions: list[tuple[Any, ...]] = []
        self._roots = roots
        self._parameters = {name: slot for slot, name in enumerate(roots.parameters)}
        # Of a step from what lies in another slot.
        self._slots: dict[tuple[int, Step], int] = {}
        self._count = len(self._parameters)
        self._classes: set[SourcePath] = set()
        for name, (first, *_) in roots.first.items():
            self.add("is", self.at(parse(f"L[{name!r}][0]")), first)

    def add(self, name: str, *operands: Any) -> None:
        self.instructions.append((name, *operands))

    def comes_with_the_call(self, path: SourcePath) -> bool:
        return not path.is_global and path.root in self._parameters and not self._roots.is_fixed(path)

    def argument_of(self, path: SourcePath) -> object:
        return self._roots.argument_of(path)

    def at(self, path: SourcePath) -> int:
        """The slot of the value at a path; each of its steps is read once."""
        slot = self._parameters[path.root]
        for step in path.steps:
            known = self._slots.get((slot, step))
            if known is None:
                self._add_step(slot, step)
                known = self._slots[slot, step] = self._new()
            slot = known
        return slot

    def keep(self, value: Any) -> int:
        """The slot of an object at hand."""
        self.add("object", value)
        return self._new()

    def keep_step(self, owner: Any, step: Step) -> int:
        """The slot of what an object at hand holds."""
        self._add_step(self.keep(owner), step)
        return self._new()

    def _new(self) -> int:
        self._count += 1
        return self._count - 1

    def _add_step(self, slot: int, step: Step) -> None:
        match step:
            case TypeOf():
                self.add("type", slot)
            case Attribute(name):
                self.add("attribute", slot, name)
            case Item(key):
                self.add("item", slot, key)
            case Size():
                raise CacheError("a size is no step to anything else")

    def add_size(self, slot: int, step: Size, index: int) -> None:
        match step:
            case Size("storage_offset", _):
                self.add("offset", slot, index)
            case Size(what, dim):
                self.add(what, slot, dim, index)

    def take(self, index: int, each: CachedInput) -> None:
        last = each.path.steps[-1] if each.path.steps else None
        if isinstance(last, Size):
            self.add_size(self.owner_at(each.path), last, index)
        elif each.is_float:
            self.add("float", self.at(each.path), index)
        elif each.is_tensor:
            self.add("tensor", self.at(each.path), index, *_traits(each))
        else:
            self.add("number", self.at(each.path), index)

    def require_distinct(self, tensors: Sequence[CachedInput], fixed: tuple[torch.Tensor, ...]) -> None:
        """Tensors that tracing found to be different objects are so at a call.

        Only those need be compared that a capture may copy; `runtime/recording/inputs.py` decides of which it does. Of
        those used in place a replay compares the addresses with the capture's, and what is written shares no memory
        with what is copied.
        """
        copyable = [each for each in tensors if each.plan.role is InputRole.USER]
        static = [each for each in tensors if each.plan.role is InputRole.STATIC]
        for position, each in enumerate(copyable):
            slot = self.at(each.path)
            if fixed:
                self.add("among", slot, fixed)
            for other in (*copyable[position + 1 :], *static):
                self.add("apart", slot, self.at(other.path))

    def require(self, guard: Guard, read: Reader) -> None:
        to_class = guard.path.steps_to_class
        if to_class is not None:
            # The rest is the same for all objects of the class.
            self.require_class(replace(guard.path, steps=guard.path.steps[:to_class]), read)
        else:
            guard.compile(self, read)

    def require_state(self, path: SourcePath, wrapper: torch.Tensor, read: Read) -> None:
        """Attributes are compared by value where they are constants, wrappers, or containers and dataclasses of them;
        of other tensors the class is, and other objects must be the same ones."""
        self.require_form(self.at(path), wrapper)
        self._require_attributes(path, wrapper, read)

    def require_form(self, slot: int, wrapper: torch.Tensor) -> None:
        """That the tensor there has this one's type, sizes, strides and traits."""
        traits = Traits.of(wrapper)
        form = (wrapper.dtype, tuple(wrapper.size()), tuple(wrapper.stride()))
        self.add("formed", slot, form, traits.requires_grad, traits.is_leaf, traits.keys)

    def _require_attributes(self, path: SourcePath, value: Any, read: Read) -> None:
        held = vars(value)
        self.add("exactly", self.at(path), tuple(held))
        for name, each in held.items():
            if name.isidentifier() and getattr(value, name) is each:
                self._require_equal(replace(path, steps=(*path.steps, Attribute(name))), each, read)

    def _require_equal(self, path: SourcePath, value: Any, read: Read) -> None:
        slot = self.at(path)
        if isinstance(value, torch.Tensor):
            self.add("of_class", slot, type(value))
            if is_traceable_wrapper_subclass(value):
                self.require_state(path, value, read)
        elif isinstance(value, _CONSTANTS):
            self.add("equals", slot, value)
        elif type(value) in (list, tuple):
            self.add("of_class", slot, type(value))
            self.add("length", slot, len(value))
            for index, each in enumerate(value):
                self._require_equal(replace(path, steps=(*path.steps, Item(index))), each, read)
        elif type(value) is dict and all(type(key) in (str, int) for key in value):
            self.add("of_class", slot, dict)
            self.add("keyed", slot, tuple(value))
            for key, each in value.items():
                self._require_equal(replace(path, steps=(*path.steps, Item(key))), each, read)
        elif is_dataclass(value) and not isinstance(value, type):
            self.add("of_class", slot, type(value))
            for field in fields(value):
                self._require_equal(
                    replace(path, steps=(*path.steps, Attribute(field.name))), getattr(value, field.name), read
                )
        else:
            self.add("is", slot, value)

    def owner_at(self, path: SourcePath) -> int:
        """The slot of what the last step is taken from."""
        return self.at(replace(path, steps=path.steps[:-1]))

    def require_class(self, path: SourcePath, read: Read) -> None:
        if path not in self._classes:
            self._classes.add(path)
            self.add("of_class", self.at(path), type(read(path)))
