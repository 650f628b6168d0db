"""Where a value lies, seen from a function's arguments: `L['self'].layers[0].keys`. What is written is never run."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from airgraph.errors import CacheError

__all__ = ["Attribute", "Item", "Size", "SourcePath", "UnsupportedPath", "is_made_by_dynamo", "parse", "resolve"]

_IMPORT_PREFIX = "__import_"


class UnsupportedPath(CacheError):
    """A value is reached in a way that cannot be written down."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """`.name`."""

    name: str

    def read(self, owner: Any) -> Any:
        return getattr(owner, self.name)


@dataclass(frozen=True, slots=True)
class Item:
    """`[key]`."""

    key: int | str

    def read(self, owner: Any) -> Any:
        return owner[self.key]


@dataclass(frozen=True, slots=True)
class Size:
    """`.size()[dim]`, `.stride()[dim]` or `.storage_offset()` of a tensor."""

    what: str
    dim: int | None

    def read(self, owner: Any) -> Any:
        sizes = getattr(owner, self.what)()
        return sizes if self.dim is None else sizes[self.dim]


Step = Attribute | Item | Size


@dataclass(frozen=True, slots=True)
class SourcePath:
    """root: the name of a parameter, or of a global as `globals()` or Dynamo have it. text: as Dynamo writes it."""

    text: str
    is_global: bool
    root: str
    steps: tuple[Step, ...]

    def read(self, arguments: Mapping[str, Any], function_globals: Mapping[str, Any]) -> Any:
        """The value there. Raises LookupError, AttributeError or TypeError where nothing is."""
        value = _global(self.root, function_globals) if self.is_global else arguments[self.root]
        for step in self.steps:
            value = step.read(value)
        return value


_ROOT = re.compile(r"""(?P<scope>[LG])\[(?:'(?P<single>[^'"\\]+)'|"(?P<double>[^"\\]+)")\]""")
_STEP = re.compile(
    r"""\.(?P<sizes>size|stride)\(\)\[(?P<dim>\d+)\]
    |\.(?P<offset>storage_offset)\(\)
    |\.__dict__\['(?P<own>[^'\\]+)'\]
    |\.(?P<name>[^\W\d]\w*)(?!\w|\()
    |\[(?P<index>-?\d+)\]
    |\['(?P<single>[^'\\]*)'\]
    |\["(?P<double>[^"\\]*)"\]""",
    re.VERBOSE,
)


def parse(text: str) -> SourcePath:
    """A path of names, constant keys and sizes. Raises UnsupportedPath for anything else; nothing is executed."""
    root = _ROOT.match(text)
    if root is None:
        raise UnsupportedPath(f"{text!r} is not a path from an argument or a global")
    steps: list[Step] = []
    end = root.end()
    while end < len(text):
        match = _STEP.match(text, end)
        if match is None or _is_hidden(match["name"] or match["own"] or ""):
            raise UnsupportedPath(f"{text!r} is not a path of names and constant keys")
        steps.append(_step(match))
        end = match.end()
    return SourcePath(text, root["scope"] == "G", root["single"] or root["double"], tuple(steps))


def _step(match: re.Match[str]) -> Step:
    if match["sizes"]:
        return Size(match["sizes"], int(match["dim"]))
    if match["offset"]:
        return Size("storage_offset", None)
    if match["name"] or match["own"]:
        return Attribute(match["name"] or match["own"])
    if match["index"]:
        return Item(int(match["index"]))
    return Item(match["single"] if match["single"] is not None else match["double"])


def resolve(text: str, read: Callable[[SourcePath], Any]) -> SourcePath:
    """The same of what Dynamo writes where a dict was iterated: by a key's position, which is looked up now."""
    try:
        tree = _KeysByPosition(read).visit(ast.parse(text, mode="eval"))
    except (SyntaxError, ValueError, RecursionError, LookupError, AttributeError, TypeError) as error:
        raise UnsupportedPath(f"{text!r} is not a path") from error
    return parse(ast.unparse(tree))


class _KeysByPosition(ast.NodeTransformer):
    """`dict.__getitem__(d, list(dict.keys(d))[0])` and `d[list(dict.keys(d))[0]]` become `d['first']`."""

    def __init__(self, read: Callable[[SourcePath], Any]) -> None:
        self._read = read

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="dict"), attr="__getitem__"), args=[owner, key]):
                position = _position_of_key(key, owner)
                if position is not None:
                    key = ast.Constant(list(self._read(parse(ast.unparse(owner))))[position])
                return ast.Subscript(owner, key, ast.Load())
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        position = _position_of_key(node.slice, node.value)
        if position is not None:
            node.slice = ast.Constant(list(self._read(parse(ast.unparse(node.value))))[position])
        return node


def _position_of_key(node: ast.expr, owner: ast.expr) -> int | None:
    match node:
        case ast.Subscript(
            value=ast.Call(
                func=ast.Name(id="list"),
                args=[ast.Call(func=ast.Attribute(value=ast.Name(id="dict"), attr="keys"), args=[ast.expr() as inner])],
            ),
            slice=ast.Constant(value=int(position)),
        ) if ast.dump(inner) == ast.dump(owner):
            return position
    return None


def is_made_by_dynamo(path: SourcePath) -> bool:
    """Whether a path starts at a global that exists only while Dynamo's code does, such as `__builtins_dict___0`."""
    return path.is_global and path.root.startswith("__") and not path.root.startswith(_IMPORT_PREFIX)


def _is_hidden(name: str) -> bool:
    """Names such as `__class__` lead from data to code."""
    return name.startswith("__") and name.endswith("__")


def _global(name: str, function_globals: Mapping[str, Any]) -> Any:
    """A global of the function, or of a module that Dynamo named: `__import_a_dot_b` is `a.b`. Imports nothing."""
    if name in function_globals:
        return function_globals[name]
    if name.startswith(_IMPORT_PREFIX):
        return sys.modules[name.removeprefix(_IMPORT_PREFIX).replace("_dot_", ".")]
    raise KeyError(name)
