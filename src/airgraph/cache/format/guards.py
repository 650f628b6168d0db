"""What a traced graph took for granted about Python values: the kinds of guards, and how they are read from files.

A class for each kind. A guard is (kind, path, expected) in a file; what `expected` holds is said by its class.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Sequence
from typing import Any

import torch

from airgraph.cache.format.graph import value_from
from airgraph.cache.format.guard import Guard, GuardCompiler, GuardWatch, Read
from airgraph.cache.format.source_path import Attribute, SourcePath, parse
from airgraph.errors import CacheError
from airgraph.program.code_identity import behaviour_of, held_text, identity_of
from airgraph.program.collectives import name_and_ranks
from airgraph.program.tensor_parts import form_of, form_text, holds_others

__all__ = [
    "CONSTANTS",
    "Apart",
    "Contains",
    "Distinct",
    "Elements",
    "Equals",
    "Excludes",
    "Group",
    "Has",
    "Inherits",
    "Keys",
    "Lacks",
    "Length",
    "Member",
    "Named",
    "OfClass",
    "Same",
    "UNIQUE_KINDS",
    "Wraps",
    "guard_from",
    "has_attribute",
    "name_of_type",
]

CONSTANTS = (bool, int, float, str, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
# Of which there is one object for each value.
_BY_IDENTITY = (bool, type(None), torch.dtype, torch.layout, torch.memory_format)


def _is_plain_float(value: Any) -> bool:
    """Whether no float but this one equals it: not zero, which has a sign, nor a NaN."""
    return type(value) is float and value != 0 and value == value


class _Otherwise:
    """Equal to nothing that a guard may expect."""

    def __repr__(self) -> str:
        return "otherwise"


_OTHERWISE = _Otherwise()


class Equals(Guard):
    """The value is this constant, of the same type."""

    __slots__ = ()
    kind, is_unique = "equals", True

    def found(self, value: Any, read: Read) -> Any:
        return value

    def compile(self, made: GuardCompiler, read: Read) -> None:
        if isinstance(self.expected, _BY_IDENTITY):
            made.add("is", made.at(self.path), self.expected)
        elif type(self.expected) in (int, str, torch.device) or _is_plain_float(self.expected):
            made.add("equals", made.at(self.path), self.expected)
        else:
            Guard.compile(self, made, read)


class OfClass(Guard):
    """The value's class does this, see `code_identity.behaviour_of`."""

    __slots__ = ()
    kind, holds, is_unique = "type", str, True

    @classmethod
    def of(cls, path: SourcePath, value: Any) -> OfClass:
        """As this value's."""
        return cls(path, behaviour_of(type(value)))

    def found(self, value: Any, read: Read) -> Any:
        return behaviour_of(type(value))

    def compile(self, made: GuardCompiler, read: Read) -> None:
        made.require_class(self.path, read)

    def watch(self, watch: GuardWatch, value: Any) -> None:
        watch.add_type(value)

    def watch_class(self, watch: GuardWatch, read: Read) -> None:
        watch.add_code(type(read(self.path)))


class Named(Guard):
    """A function, class or module of this identity, see `code_identity.identity_of`."""

    __slots__ = ()
    kind, holds, is_unique = "named", str, True

    def found(self, value: Any, read: Read) -> Any:
        return identity_of(value)

    def compile(self, made: GuardCompiler, read: Read) -> None:
        # The same object, or one that is made anew for each call, such as a lambda.
        known, expected = read(self.path), self.expected
        made.add("holds", made.at(self.path), lambda value: value is known or identity_of(value) == expected)

    def watch(self, watch: GuardWatch, value: Any) -> None:
        watch.add_code(value)

    def watch_class(self, watch: GuardWatch, read: Read) -> None:
        watch.add_code(read(self.path))


class Member(Guard):
    """The member of an enum with this full name and value."""

    __slots__ = ()
    kind, holds, is_unique = "member", str, True

    @classmethod
    def of(cls, path: SourcePath, value: enum.Enum) -> Member:
        return cls(path, held_text(value))

    def found(self, value: Any, read: Read) -> Any:
        return held_text(value) if isinstance(value, enum.Enum) else None

    def compile(self, made: GuardCompiler, read: Read) -> None:
        made.add("is", made.at(self.path), read(self.path))


class Group(Guard):
    """A group of processes of torch.distributed: its name and ranks."""

    __slots__ = ()
    kind, holds, is_unique = "group", list, True

    def found(self, value: Any, read: Read) -> Any:
        return name_and_ranks(value)

    def compile(self, made: GuardCompiler, read: Read) -> None:
        known, expected = read(self.path), self.expected
        made.add("holds", made.at(self.path), lambda value: value is known or name_and_ranks(value) == expected)


class Length(Guard):
    """A container has so many elements."""

    __slots__ = ()
    kind, is_unique = "length", True

    def found(self, value: Any, read: Read) -> Any:
        return len(value)

    def compile(self, made: GuardCompiler, read: Read) -> None:
        made.add("length", made.at(self.path), self.expected)

    def watch(self, watch: GuardWatch, value: Any) -> None:
        watch.add_length(value)


class Keys(Guard):
    """A dict has these keys, in this order."""

    __slots__ = ()
    kind, holds, is_unique = "keys", list, True

    def found(self, value: Any, read: Read) -> Any:
        return list(value)

    def compile(self, made: GuardCompiler, read: Read) -> None:
        if self.path.steps and self.path.steps[-1] == Attribute("__dict__"):
            # Decided by the object's attributes, and so remembered until they change.
            made.add("exactly", made.owner_at(self.path), tuple(self.expected))
        else:
            made.add("keyed", made.at(self.path), tuple(self.expected))

    def watch(self, watch: GuardWatch, value: Any) -> None:
        watch.add_keys(value)


class Elements(Guard):
    """A set has these elements, in the order of this process."""

    __slots__ = ()
    kind, holds, is_unique = "elements", list, True

    def found(self, value: Any, read: Read) -> Any:
        return list(value)

    def watch(self, watch: GuardWatch, value: Any) -> None:
        watch.add_keys(value)


class Contains(Guard):
    """A dict or set has this key."""

    __slots__ = ()
    kind = "contains"

    def found(self, value: Any, read: Read) -> Any:
        return self.expected if self.expected in value else _OTHERWISE

    def watch(self, watch: GuardWatch, value: Any) -> None:
        watch.add_keys(value)


class Excludes(Guard):
    """A dict or set has it not."""

    __slots__ = ()
    kind = "excludes"

    def found(self, value: Any, read: Read) -> Any:
        return self.expected if self.expected not in value else _OTHERWISE

    def watch(self, watch: GuardWatch, value: Any) -> None:
        watch.add_keys(value)


class Has(Guard):
    """An object has an attribute of this name."""

    __slots__ = ()
    kind, holds = "has", str

    def found(self, value: Any, read: Read) -> Any:
        return self.expected if has_attribute(value, self.expected) else None

    def compile(self, made: GuardCompiler, read: Read) -> None:
        made.add("has", made.at(self.path), self.expected)

    def watch(self, watch: GuardWatch, value: Any) -> None:
        watch.add_present(value, self.expected)


class Lacks(Guard):
    """An object has none of this name."""

    __slots__ = ()
    kind, holds = "lacks", str

    def found(self, value: Any, read: Read) -> Any:
        return None if has_attribute(value, self.expected) else self.expected

    def compile(self, made: GuardCompiler, read: Read) -> None:
        made.add("lacks", made.at(self.path), self.expected)

    def watch(self, watch: GuardWatch, value: Any) -> None:
        watch.add_absent(value, self.expected, in_class=True)


class Inherits(Guard):
    """An object has an attribute of this name, but not of its own."""

    __slots__ = ()
    kind, holds = "inherits", str

    def found(self, value: Any, read: Read) -> Any:
        return self.expected if self.expected not in vars(value) else None

    def compile(self, made: GuardCompiler, read: Read) -> None:
        made.add("inherits", made.at(self.path), self.expected)

    def watch(self, watch: GuardWatch, value: Any) -> None:
        watch.add_absent(value, self.expected, in_class=False)


class Wraps(Guard):
    """A tensor of a wrapping subclass has this form, see `tensor_parts.form_of`."""

    __slots__ = ()
    kind, holds, is_unique = "wraps", str, True

    @classmethod
    def of(cls, path: SourcePath, value: torch.Tensor) -> Wraps:
        """As this tensor has. Raises TypeError where it cannot be written down."""
        return cls(path, cls._text(value))

    def found(self, value: Any, read: Read) -> Any:
        return self._text(value)

    @staticmethod
    def _text(value: Any) -> str:
        return form_text((form_of(value), isinstance(value, torch.Tensor) and value.requires_grad))

    def compile(self, made: GuardCompiler, read: Read) -> None:
        if self.broken(read) is not None or holds_others(read(self.path)):
            Guard.compile(self, made, read)
        else:
            made.require_state(self.path, read(self.path), read)

    def watch(self, watch: GuardWatch, value: Any) -> None:
        watch.add_attributes(value)


class Same(Guard):
    """The object at another path, which `expected` names, is this one."""

    __slots__ = ()
    kind, holds = "same", str

    @property
    def other(self) -> SourcePath:
        return parse(self.expected)

    @property
    def others(self) -> tuple[SourcePath, ...]:
        return (self.other,)

    def found(self, value: Any, read: Read) -> Any:
        return self.expected if read(self.other) is value else None

    def in_words(self, found: Any) -> str:
        return f"{self.path.text} is not the same object as {self.expected} any more"

    def compile(self, made: GuardCompiler, read: Read) -> None:
        slot = made.at(self.path)
        if made.comes_with_the_call(self.other):
            made.add("same", slot, made.at(self.other))
        else:
            made.add("is", slot, read(self.other))


class Distinct(Guard):
    """None of the objects at other paths, which `expected` names, is this one, nor one another."""

    __slots__ = ()
    kind, holds = "distinct", list

    @property
    def others(self) -> tuple[SourcePath, ...]:
        return tuple(map(parse, self.expected))

    def found(self, value: Any, read: Read) -> Any:
        values = [value, *map(read, self.others)]
        return self.expected if len(set(map(id, values))) == len(values) else None

    def compile(self, made: GuardCompiler, read: Read) -> None:
        """Of objects by different arguments only: in one they may be many, and lie where its own code puts them."""
        paths = [self.path, *self.others]
        given = [path for path in paths if made.comes_with_the_call(path)]
        fixed = tuple(read(path) for path in paths if not made.comes_with_the_call(path))
        for position, path in enumerate(given):
            slot = made.at(path)
            if fixed:
                made.add("among", slot, fixed)
            for other in given[position + 1 :]:
                if made.argument_of(other) != made.argument_of(path):
                    made.add("apart", slot, made.at(other))


class Apart(Guard):
    """None of the objects at other paths, which `expected` names, is this one, whatever argument they come by."""

    __slots__ = ()
    kind, holds = "apart", list

    @property
    def others(self) -> tuple[SourcePath, ...]:
        return tuple(map(parse, self.expected))

    def found(self, value: Any, read: Read) -> Any:
        return self.expected if all(read(path) is not value for path in self.others) else None

    def compile(self, made: GuardCompiler, read: Read) -> None:
        given = [path for path in self.others if made.comes_with_the_call(path)]
        if not made.comes_with_the_call(self.path):
            for path in given:
                made.add("among", made.at(path), (read(self.path),))
            return
        slot = made.at(self.path)
        for path in given:
            made.add("apart", slot, made.at(path))
        fixed = tuple(read(path) for path in self.others if not made.comes_with_the_call(path))
        if fixed:
            made.add("among", slot, fixed)


_KINDS: dict[str, type[Guard]] = {
    class_.kind: class_
    for class_ in (
        *(Equals, OfClass, Named, Member, Length, Keys, Elements, Contains, Excludes, Has, Lacks, Inherits),
        *(Same, Distinct, Apart, Group, Wraps),
    )
}
# Of these, a path has one.
UNIQUE_KINDS = frozenset(kind for kind, class_ in _KINDS.items() if class_.is_unique)


def guard_from(data: Sequence[Any]) -> Guard:
    """What `Guard.to_data` wrote. Raises CacheError for what no guard is written as."""
    kind, path, expected = data[0], parse(data[1]), value_from(data[2], {})
    if kind not in _KINDS:
        raise CacheError(f"unknown kind of guard: {kind!r}")
    class_ = _KINDS[kind]
    if len(data) != 3 or (class_.holds is not None and type(expected) is not class_.holds):
        raise CacheError(f"guard {kind!r} of {path.text}: unexpected {expected!r}")
    made = class_(path, expected)
    # Raises for what is no path.
    tuple(made.others)
    return made


def has_attribute(value: Any, name: str) -> bool:
    # A module that is asked for more than it has may import something.
    return name in vars(value) if isinstance(value, types.ModuleType) else hasattr(value, name)


def name_of_type(type_: type) -> str:
    return f"{type_.__module__}.{type_.__qualname__}"
