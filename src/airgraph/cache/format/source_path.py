"""Where a value lies, seen from a function's arguments: `L['self'].layers[0].keys`. What is written is never run."""

from __future__ import annotations

import ast
import functools
import re
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from airgraph.errors import UnsupportedPath
from airgraph.torch_internals import dynamo_texts
from airgraph.torch_internals.settings import SettingsModule

__all__ = [
    "Attribute",
    "Item",
    "Size",
    "SourcePath",
    "Step",
    "TypeOf",
    "global_root",
    "is_made_by_dynamo",
    "parse",
    "resolve",
]

# These lead from data to all that is loaded. What is read through others is compared, and never called.
_HIDDEN = {f"__{name}__" for name in ("builtins", "globals", "import", "loader", "spec", "subclasses")}


# `torch.ops` and its namespaces, which find operators when they are asked for them, and modules of settings.
_FINDS_WHAT_IS_ASKED = (torch._ops._Ops, torch._ops._OpNamespace, SettingsModule)


@dataclass(frozen=True, slots=True)
class Attribute:
    """`.name`; of a module only what it has, for asking it for more may import something."""

    name: str

    def read(self, owner: Any) -> Any:
        is_module = isinstance(owner, types.ModuleType) and not isinstance(owner, _FINDS_WHAT_IS_ASKED)
        return vars(owner)[self.name] if is_module else getattr(owner, self.name)


@dataclass(frozen=True, slots=True)
class Item:
    """`[key]`; of a dict the entry, whatever its class makes of it."""

    key: int | str

    def read(self, owner: Any) -> Any:
        return dict.__getitem__(owner, self.key) if isinstance(owner, dict) else owner[self.key]


@dataclass(frozen=True, slots=True)
class Size:
    """`.size()[dim]`, `.stride()[dim]` or `.storage_offset()` of a tensor."""

    what: str
    dim: int | None

    def read(self, owner: Any) -> Any:
        if not isinstance(owner, torch.Tensor):
            raise TypeError(f"{self.what} of a {type(owner).__name__}, which is no tensor")
        sizes = getattr(owner, self.what)()
        return sizes if self.dim is None else sizes[self.dim]


@dataclass(frozen=True, slots=True)
class TypeOf:
    """`type(...)` around what comes before."""

    def read(self, owner: Any) -> Any:
        return type(owner)


Step = Attribute | Item | Size | TypeOf


@dataclass(frozen=True, slots=True)
class SourcePath:
    """root: the name of a parameter, or of a global as `globals()` or Dynamo have it. text: as Dynamo writes it."""

    text: str
    is_global: bool
    root: str
    steps: tuple[Step, ...]

    @property
    def steps_to_class(self) -> int | None:
        """How many steps lead to the object whose class the next one takes; what follows depends on the class alone."""
        for position, step in enumerate(self.steps):
            if isinstance(step, TypeOf) or (isinstance(step, Attribute) and step.name == "__class__"):
                return position
        return None

    @property
    def is_size(self) -> bool:
        """Whether it is a size of the tensor that it leads to."""
        return bool(self.steps) and isinstance(self.steps[-1], Size)

    def read(self, arguments: Mapping[str, Any], function_globals: Mapping[str, Any]) -> Any:
        """The value there. Raises LookupError, AttributeError or TypeError where nothing is."""
        value = global_root(self.root, function_globals)[1] if self.is_global else arguments[self.root]
        for step in self.steps:
            value = step.read(value)
        return value


# Of a global that Dynamo keeps: `id(value)`, and the number of the trace.
_BY_ADDRESS = re.compile(r"G\['\w*?_\d{6,}_c\d+(?:_\d+)*'\]")
_ROOT = re.compile(r"""(?P<scope>[LG])\[(?:'(?P<single>[^'"\\]+)'|"(?P<double>[^"\\]+)")\]""")
_STEP = re.compile(
    r"""\.(?P<sizes>size|stride)\(\)\[(?P<dim>\d+)\]
    |\.(?P<offset>storage_offset)\(\)
    |\.(?P<name>[^\W\d]\w*)(?!\w|\()
    |\[(?P<index>-?\d+)\]
    |\['(?P<single>[^'\\]*)'\]
    |\["(?P<double>[^"\\]*)"\]""",
    re.VERBOSE,
)
# dict() around a class's namespace makes an ordinary dict of it, in which the same is found.
_AROUND = ("type(", "dict(")


@functools.lru_cache(maxsize=1 << 14)
def parse(text: str) -> SourcePath:
    """A path of names, constant keys, sizes and types. Raises UnsupportedPath for anything else; nothing is run."""
    around: list[str] = []
    start = 0
    while (opened := next((each for each in _AROUND if text.startswith(each, start)), None)) is not None:
        around.append(opened)
        start += len(opened)
    root = _ROOT.match(text, start)
    if root is None:
        raise UnsupportedPath(f"{text!r} is not a path from an argument or a global")
    steps: list[Step] = []
    end = root.end()
    while end < len(text):
        if text[end] == ")" and around:
            if around.pop() == "type(":
                steps.append(TypeOf())
            end += 1
            continue
        match = _STEP.match(text, end)
        if match is None or match["name"] in _HIDDEN:
            raise UnsupportedPath(f"{text!r} is not a path of names and constant keys")
        steps.append(_step(match))
        end = match.end()
    if around:
        raise UnsupportedPath(f"{text!r} is not a path: a bracket is open")
    return SourcePath(text, root["scope"] == "G", root["single"] or root["double"], tuple(steps))


def _step(match: re.Match[str]) -> Step:
    if match["sizes"]:
        return Size(match["sizes"], int(match["dim"]))
    if match["offset"]:
        return Size("storage_offset", None)
    if match["name"]:
        return Attribute(match["name"])
    if match["index"]:
        return Item(int(match["index"]))
    return Item(match["single"] if match["single"] is not None else match["double"])


def resolve(text: str, read: Callable[[SourcePath], Any]) -> SourcePath:
    """The same of what Dynamo writes by a number of this process, which is looked up now: a key by its position where a
    dict was iterated, a module by its address where it has no name in the program."""
    text = _BY_ADDRESS.sub(lambda found: _module_by_name(found, read), text)
    if "dict.keys(" not in text and "dict.__getitem__(" not in text:
        return parse(text)
    try:
        tree = _KeysByPosition(read).visit(ast.parse(text, mode="eval"))
    except (SyntaxError, ValueError, RecursionError, LookupError, AttributeError, TypeError) as error:
        raise UnsupportedPath(f"{text!r} is not a path") from error
    return parse(ast.unparse(tree))


def _module_by_name(found: re.Match[str], read: Callable[[SourcePath], Any]) -> str:
    try:
        value = read(parse(found[0]))
    except LookupError:
        return found[0]
    name = str(getattr(value, "__name__", ""))
    if not isinstance(value, types.ModuleType) or sys.modules.get(name) is not value:
        raise UnsupportedPath(f"{found[0]} is a {type(value).__name__} that is found by its address only")
    return f"G['{dynamo_texts.global_for(name)}']"


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
                    key = self._key_at(owner, position)
                return ast.Subscript(owner, key, ast.Load())
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        position = _position_of_key(node.slice, node.value)
        if position is not None:
            node.slice = self._key_at(node.value, position)
        return node

    def _key_at(self, owner: ast.expr, position: int) -> ast.Constant:
        held = self._read(parse(ast.unparse(owner)))
        # As the text says: an OrderedDict whose order was changed still has its keys there as they came.
        return ast.Constant(list(dict.keys(held) if isinstance(held, dict) else held)[position])


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


def is_made_by_dynamo(text: str) -> bool:
    """Whether a path starts at a global that exists only while Dynamo's code does, such as `__builtins_dict___0`."""
    return re.match(rf"(?:type\(|dict\()*G\['(?:{'|'.join(dynamo_texts.START_PATHS)})", text) is not None


def global_root(name: str, function_globals: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, Any]:
    """The namespace in which a global is found, and its value.

    It is a global of the function, or of a module that Dynamo named: `__import_a_dot_b` is `a.b`. Imports nothing.
    """
    if name in function_globals:
        return function_globals, function_globals[name]
    module = dynamo_texts.name_of_imported(name)
    if module is not None:
        return None, sys.modules[module]
    raise KeyError(name)
