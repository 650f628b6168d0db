"""What a function returns around its tensors: tuples, dicts, dataclasses, constants, arguments, as plain data.

`{"output": 0}`, `{"number": "s0 + 1"}`, `{"argument": "L['cache']"}`, `{"constant": ...}`, `{"tuple": [...]}`,
`{"list": [...]}`, `{"Size": [...]}`, `{"dict": [[key, value], ...]}`, `{"record": [class, [[field, value], ...]]}`.
A class is only ever looked up among the modules that are loaded, and must be a dataclass or a named tuple.
"""

from __future__ import annotations

import ast
import dataclasses
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from airgraph.cache.conditions import CONSTANTS, name_of_type
from airgraph.cache.graph_format import Unwritable, value_from, value_to
from airgraph.errors import CacheError

__all__ = ["Leaf", "NumberLeaf", "build_expression", "structure_of"]


_SEQUENCES = (tuple, list, torch.Size)


class Leaf:
    """Stands for the output `index` of a graph while the structure around outputs is found out."""

    def __init__(self, index: int) -> None:
        self.index = index


class NumberLeaf(int):
    """Stands for an integer that follows from sizes, also where only an integer may be. text: as an expression."""

    text: str

    @classmethod
    def of(cls, text: str) -> NumberLeaf:
        made = cls()
        made.text = text
        return made


def structure_of(value: Any, paths: Mapping[int, str]) -> Any:
    """The structure of a value whose leaves are `Leaf`s. paths: of arguments that may be returned, by `id`.

    Raises Unwritable, naming the type, for what it cannot hold.
    """
    if isinstance(value, Leaf):
        return {"output": value.index}
    if isinstance(value, NumberLeaf):
        return {"number": value.text}
    if id(value) in paths and type(value) not in CONSTANTS:
        return {"argument": paths[id(value)]}
    if type(value) in _SEQUENCES:
        return {type(value).__name__: [structure_of(item, paths) for item in value]}
    if type(value) is dict:
        return {"dict": [[value_to(key), structure_of(item, paths)] for key, item in value.items()]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if not all(field.init for field in dataclasses.fields(value)):
            raise Unwritable(f"the result is a {name_of_type(type(value))} with fields that its __init__ does not take")
        held = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        more = set(getattr(value, "__dict__", held)) - set(held)
        if more:
            raise Unwritable(f"the result is a {name_of_type(type(value))} with more than its fields: {sorted(more)}")
        return _record(value, held, paths)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _record(value, dict(zip(value._fields, value, strict=True)), paths)
    if isinstance(value, torch.Tensor):
        raise Unwritable("the result holds a tensor that is neither an argument nor computed by the graph")
    if type(value) not in CONSTANTS:
        raise Unwritable(f"the result holds an object of type {name_of_type(type(value))}")
    return {"constant": value_to(value)}


def _record(value: Any, held: Mapping[str, Any], paths: Mapping[int, str]) -> Any:
    name = name_of_type(type(value))
    if _record_class(name) is not type(value):
        raise Unwritable(f"the result is a {name}, which has code of its own to make it, or is not found by its name")
    return {"record": [name, [[key, structure_of(item, paths)] for key, item in held.items()]]}


def build_expression(
    data: Any,
    output: Callable[[int], ast.expr],
    number: Callable[[str], ast.expr],
    argument: Callable[[str], ast.expr],
    keep: Callable[[Any], ast.expr],
) -> ast.expr:
    """An expression that builds the structure. output, number, argument: of a leaf; keep: refers to an object at hand.

    Raises CacheError for what `structure_of` cannot have written.
    """

    def build(data: Any) -> ast.expr:
        if not isinstance(data, dict) or len(data) != 1:
            raise CacheError(f"expected a structure, got {data!r}")
        ((kind, content),) = data.items()
        match kind, content:
            case "output", int():
                return output(content)
            case "number", str():
                return number(content)
            case "argument", str():
                return argument(content)
            case "constant", _:
                return keep(value_from(content, {}))
            case "tuple", list():
                return ast.Tuple([build(item) for item in content], ast.Load())
            case "list", list():
                return ast.List([build(item) for item in content], ast.Load())
            case "Size", list():
                return ast.Call(keep(torch.Size), [ast.List([build(item) for item in content], ast.Load())], [])
            case "dict", list():
                return ast.Dict([keep(value_from(k, {})) for k, _ in content], [build(item) for _, item in content])
            case "record", [str(name), list(fields)]:
                class_ = _record_class(name)
                if class_ is None:
                    raise CacheError(f"the result's class {name} is not loaded, or not a dataclass or named tuple")
                if [key for key, _ in fields] != _fields_of(class_):
                    raise CacheError(f"the result's class {name} has other fields")
                keywords = [ast.keyword(_field(key), build(item)) for key, item in fields]
                return ast.Call(keep(class_), [], keywords)
        raise CacheError(f"no such structure: {kind}")

    return build(data)


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
        return [field.name for field in dataclasses.fields(class_)]
    return list(class_._fields)  # type: ignore[attr-defined]


def _is_plain(class_: type) -> bool:
    if issubclass(class_, tuple) and hasattr(class_, "_fields"):
        return _is_generated(class_.__new__) and class_.__init__ is object.__init__
    if not dataclasses.is_dataclass(class_) or not _is_generated(class_.__init__):
        return False
    made_by = class_.__new__ in (object.__new__, dict.__new__, OrderedDict.__new__)
    # transformers' results, dicts of their fields that are not None: making one again gives the same.
    model_output = getattr(sys.modules.get("transformers.utils.generic"), "ModelOutput", None)
    after = getattr(class_, "__post_init__", None)
    is_model_output = model_output is not None and after is getattr(model_output, "__post_init__", None)
    sets_plainly = class_.__setattr__ is object.__setattr__ or _is_generated(class_.__setattr__)
    return made_by and ((after is None and sets_plainly) or is_model_output)


def _is_generated(function: Any) -> bool:
    """Whether dataclasses or collections wrote a function."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename.startswith("<")
