"""What a function returns around its tensors: tuples, dicts, dataclasses, constants, arguments, as plain data.

`{"output": 0}`, `{"number": "s0 + 1"}`, `{"argument": "L['cache']"}`, `{"constant": ...}`,
`{"view": ["L['cache']", [2, "s0"], ["s0", 1], 0]}`, `{"tuple": [...]}`, `{"list": [...]}`,
`{"Size": [...]}`, `{"dict": [[key, value], ...]}`, `{"record": [class, [[field, value], ...]]}`.
`{"same": 2}` is the third container or view that began before, once more: of a result and of what is written, one after
the other. A class is only ever looked up among the modules that are loaded, and must be a dataclass or a named tuple.
"""

from __future__ import annotations

import ast
import dataclasses
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch

from airgraph.cache.format.graph import value_from, value_to
from airgraph.cache.format.guards import CONSTANTS, name_of_type
from airgraph.errors import CacheError, Unwritable

__all__ = ["ArgumentLeaf", "Expressions", "Leaf", "NumberLeaf", "Structures", "ViewLeaf"]


_SEQUENCES = (tuple, list, torch.Size)


class Leaf:
    """Stands for the output `index` of a graph while the structure around outputs is found out."""

    def __init__(self, index: int) -> None:
        self.index = index


class NumberLeaf(int):
    """Stands for an integer that follows from sizes, also where only an integer may be. text: as an expression. now:
    what it is while tracing, where that is known."""

    text: str
    now: int | None

    @classmethod
    def of(cls, text: str, now: int | None) -> NumberLeaf:
        made = cls()
        made.text, made.now = text, now
        return made


@dataclass(frozen=True, slots=True, eq=False)
class ArgumentLeaf:
    """Stands for a tensor among the arguments, by its path."""

    path: str


@dataclass(frozen=True, slots=True, eq=False)
class ViewLeaf:
    """Stands for a view of a tensor among the arguments. shape, stride: sizes or expressions. offset: from the
    argument's own, in elements."""

    path: str
    shape: tuple[int | str, ...]
    stride: tuple[int | str, ...]
    offset: int | str


class Structures:
    """Writes down values whose leaves are `Leaf`s, one after the other. paths: of arguments that may be returned, by
    `id`."""

    def __init__(self, paths: Mapping[int, str]) -> None:
        self._paths = paths
        # Containers by `id`, which they keep as long as they are held here; None while one is being written down.
        self._numbers: dict[int, int] = {}
        self._held: list[Any] = []
        self._begun: set[int] = set()

    def of(self, value: Any) -> Any:
        """The structure of a value. Raises Unwritable, naming the type, for what it cannot hold."""
        if isinstance(value, Leaf):
            return {"output": value.index}
        if isinstance(value, NumberLeaf):
            return {"number": value.text}
        if isinstance(value, ArgumentLeaf):
            return {"argument": value.path}
        if id(value) in self._paths and type(value) not in CONSTANTS:
            return {"argument": self._paths[id(value)]}
        if isinstance(value, torch.Tensor):
            raise Unwritable("the result holds a tensor that is neither an argument nor computed by the graph")
        if type(value) in CONSTANTS:
            return {"constant": value_to(value)}
        if id(value) in self._begun:
            raise Unwritable(f"the result holds a {name_of_type(type(value))} that is within itself")
        if id(value) in self._numbers:
            return {"same": self._numbers[id(value)]}
        self._numbers[id(value)] = len(self._held)
        self._held.append(value)
        self._begun.add(id(value))
        structure = self._of_container(value)
        self._begun.discard(id(value))
        return structure

    def _of_container(self, value: Any) -> Any:
        if isinstance(value, ViewLeaf):
            return {"view": [value.path, list(value.shape), list(value.stride), value.offset]}
        if type(value) in _SEQUENCES:
            return {type(value).__name__: [self.of(item) for item in value]}
        if type(value) is dict:
            return {"dict": [[value_to(key), self.of(item)] for key, item in value.items()]}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self._of_record(value, dict(zip(value._fields, value, strict=True)))
        name = name_of_type(type(value))
        if not dataclasses.is_dataclass(value) or isinstance(value, type):
            raise Unwritable(f"the result holds an object of type {name}")
        if not all(each.init for each in dataclasses.fields(value)):
            raise Unwritable(f"the result is a {name} with fields that its __init__ does not take")
        held = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        more = set(getattr(value, "__dict__", held)) - set(held)
        if more:
            raise Unwritable(f"the result is a {name} with more than its fields: {sorted(more)}")
        return self._of_record(value, held)

    def _of_record(self, value: Any, held: Mapping[str, Any]) -> Any:
        name = name_of_type(type(value))
        if _record_class(name) is not type(value):
            raise Unwritable(
                f"the result is a {name}, which has code of its own to make it, or is not found by its name"
            )
        return {"record": [name, [[key, self.of(item)] for key, item in held.items()]]}


@dataclass(frozen=True, slots=True)
class Expressions:
    """Expressions that build structures, one after the other. output, number, argument, view: of a leaf. keep: refers
    to an object at hand. variable: to a value that is worked out once, from then on."""

    output: Callable[[int], ast.expr]
    number: Callable[[str], ast.expr]
    argument: Callable[[str], ast.expr]
    view: Callable[[ViewLeaf], ast.expr]
    keep: Callable[[Any], ast.expr]
    variable: Callable[[ast.expr], ast.expr]
    # None while one is being built.
    _containers: list[ast.expr | None] = field(default_factory=list)

    def of(self, data: Any) -> ast.expr:
        """Raises CacheError for what `Structures` cannot have written."""
        if not isinstance(data, dict) or len(data) != 1:
            raise CacheError(f"expected a structure, got {data!r}")
        ((kind, content),) = data.items()
        match kind, content:
            case "output", int():
                return self.output(content)
            case "number", str():
                return self.number(content)
            case "argument", str():
                return self.argument(content)
            case "constant", _:
                return self.keep(value_from(content, {}))
            case "same", int() if 0 <= content < len(self._containers):
                again = self._containers[content]
                if again is None:
                    raise CacheError("a structure is within itself")
                return again
        number = len(self._containers)
        self._containers.append(None)
        made = self.variable(self._container(kind, content))
        self._containers[number] = made
        return made

    def _container(self, kind: Any, content: Any) -> ast.expr:
        match kind, content:
            case "view", [str(path), list(shape), list(stride), offset] if _are_sizes(*shape, *stride, offset):
                return self.view(ViewLeaf(path, tuple(shape), tuple(stride), offset))
            case "tuple", list():
                return ast.Tuple([self.of(item) for item in content], ast.Load())
            case "list", list():
                return ast.List([self.of(item) for item in content], ast.Load())
            case "Size", list():
                items = ast.List([self.of(item) for item in content], ast.Load())
                return ast.Call(self.keep(torch.Size), [items], [])
            case "dict", list():
                keys: list[ast.expr | None] = [self.keep(value_from(key, {})) for key, _ in content]
                return ast.Dict(keys, [self.of(item) for _, item in content])
            case "record", [str(name), list(fields)]:
                class_ = _record_class(name)
                if class_ is None:
                    raise CacheError(f"the result's class {name} is not loaded, or not a dataclass or named tuple")
                if [key for key, _ in fields] != _fields_of(class_):
                    raise CacheError(f"the result's class {name} has other fields")
                keywords = [ast.keyword(_field(key), self.of(item)) for key, item in fields]
                return ast.Call(self.keep(class_), [], keywords)
        raise CacheError(f"no such structure: {kind}")


def _are_sizes(*values: Any) -> bool:
    return all(type(value) in (int, str) for value in values)


def _field(name: Any) -> str:
    if not isinstance(name, str) or not name.isidentifier():
        raise CacheError(f"{name!r} is not the name of a field")
    return name


def _record_class(name: str) -> type | None:
    """The dataclass or named tuple of this full name, if it is loaded and making one runs no code of its author's."""
    parts: Sequence[str] = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        found: Any = sys.modules.get(".".join(parts[:length]))
        for part in parts[length:]:
            # Not by getattr, for which a module may import something.
            found = vars(found).get(part) if isinstance(found, (type, types.ModuleType)) else None
        if isinstance(found, type):
            return found if _is_plain(found) else None
    return None


def _fields_of(class_: type) -> list[str]:
    if dataclasses.is_dataclass(class_):
        return [each.name for each in dataclasses.fields(class_)]
    return list(class_._fields)  # type: ignore[attr-defined]


def _is_plain(class_: type) -> bool:
    if issubclass(class_, tuple) and hasattr(class_, "_fields"):
        return _is_generated(class_.__new__) and class_.__init__ is object.__init__
    if not dataclasses.is_dataclass(class_):
        return False
    if class_.__new__ not in (object.__new__, dict.__new__, OrderedDict.__new__):
        return False
    if _is_model_output(class_):
        return True
    sets_plainly = class_.__setattr__ is object.__setattr__ or _is_generated(class_.__setattr__)
    return _is_generated(class_.__init__) and not hasattr(class_, "__post_init__") and sets_plainly


def _is_model_output(class_: type) -> bool:
    """Whether it is a result of transformers', a dict of its fields that are not None: making one again gives the same.

    Since 5.24 transformers wraps what dataclasses wrote, to take an older name of a field.
    """
    generic = sys.modules.get("transformers.utils.generic")
    model_output: Any = getattr(generic, "ModelOutput", None)
    made = cast(Any, class_).__init__
    if model_output is None or getattr(class_, "__post_init__", None) is not getattr(model_output, "__post_init__", 0):
        return False
    wrapped = getattr(made, "__wrapped__", None)
    code = getattr(made, "__code__", None)
    is_theirs = code is not None and code.co_filename == getattr(generic, "__file__", None)
    return _is_generated(made) or (is_theirs and _is_generated(wrapped))


def _is_generated(function: Any) -> bool:
    """Whether dataclasses or collections wrote a function."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename.startswith("<")
