"""Makes a function that puts together what a cached function returns, from the outputs of its graph, and writes the
attributes that it writes.

The function is built as a syntax tree from parsed paths: names, constant keys and calls of known classes. No text of a
cache file is ever compiled.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import CodeType, FunctionType
from typing import Any

import torch

from airgraph.cache.format.manifest import Manifest
from airgraph.cache.format.result_spec import Expressions, ViewLeaf
from airgraph.cache.format.shape_guard import evaluate, symbols
from airgraph.cache.format.source_path import (
    Attribute,
    Item,
    Size,
    SourcePath,
    Step,
    TypeOf,
    global_root,
    parse,
)
from airgraph.errors import CacheError

__all__ = ["build_result"]

_OUTPUTS = "outputs"


def build_result(
    manifest: Manifest,
    parameters: Sequence[str],
    fixed: Mapping[str, Any],
    function_globals: Mapping[str, Any],
    *,
    writes: bool = True,
) -> Callable[..., Any]:
    """A function of the graph's outputs and the call's parameters that does and returns what the cached function does
    and returns.

    fixed: the values of roots that do not come with a call. writes: whether it writes attributes too. Raises CacheError
    for a structure that cannot be built.
    """
    tree = _Tree(parameters)
    outputs = len(manifest.graph["outputs"]["tuple"])

    def output(index: int) -> ast.expr:
        if not 0 <= index < outputs:
            raise CacheError(f"the graph has no output {index}")
        return ast.Subscript(_name(_OUTPUTS), ast.Constant(index), ast.Load())

    def at(path: SourcePath) -> ast.expr:
        if tree.comes_with_the_call(path):
            return tree.at(path)
        if path.is_global or path.root not in fixed:
            raise CacheError(f"the result holds {path.text}, which is no argument")
        # Looked up at every call, so that it is what the object holds then.
        return tree.chain(tree.keep(fixed[path.root]), path)

    def size_at(path: SourcePath) -> ast.expr:
        if not path.is_global:
            return at(path)
        try:
            namespace, owner = global_root(path.root, function_globals)
        except KeyError as error:
            raise CacheError(f"{path.text} is not there") from error
        is_there = ast.Subscript(tree.keep(namespace), ast.Constant(path.root), ast.Load())
        return tree.chain(is_there if namespace is not None else tree.keep(owner), path)

    def number(text: str) -> ast.expr:
        names = sorted(symbols(text))
        sizes = ast.Dict([ast.Constant(name) for name in names], [size_at(_place_of(name, manifest)) for name in names])
        return sizes.values[0] if names == [text] else _call(tree.keep(evaluate), ast.Constant(text), sizes)

    def size(value: int | str) -> ast.expr:
        return ast.Constant(value) if isinstance(value, int) else number(value)

    def view(leaf: ViewLeaf) -> ast.expr:
        forms = [ast.Tuple([size(each) for each in sizes], ast.Load()) for sizes in (leaf.shape, leaf.stride)]
        return _call(tree.keep(_view), at(parse(leaf.path)), *forms, size(leaf.offset))

    expressions = Expressions(output, number, lambda text: at(parse(text)), view, tree.keep, tree.variable)
    # All is read before anything is written.
    result = tree.variable(expressions.of(manifest.structure))
    assignments: list[ast.stmt] = []
    for each in manifest.writes:
        owner, written = tree.variable(at(each.owner)), tree.variable(expressions.of(each.structure))
        step = each.step
        place = (
            ast.Attribute(owner, step.name, ast.Store())
            if isinstance(step, Attribute)
            else ast.Subscript(owner, ast.Constant(step.key), ast.Store())
        )
        assignments.append(ast.Assign([place], written))
    statements = [*tree.body, *(assignments if writes else ()), ast.Return(result)]
    return tree.compiled([_OUTPUTS, *parameters], statements)


def _view(tensor: torch.Tensor, shape: Sequence[int], stride: Sequence[int], offset: int) -> torch.Tensor:
    # As for the rest of the result: a view of a parameter must not be part of a graph of gradients.
    with torch.no_grad():
        return tensor.as_strided(shape, stride, tensor.storage_offset() + offset)


def _place_of(symbol: str, manifest: Manifest) -> SourcePath:
    """Where a call has the value of a symbol."""
    for each in (*manifest.inputs, *manifest.looked_at):
        if each.symbol == symbol:
            return each.path
        for what, sizes in (("size", each.shape), ("stride", each.stride)):
            if symbol in sizes:
                step = Size(what, sizes.index(symbol))
                return replace(each.path, steps=(*each.path.steps, step))
    raise CacheError(f"no argument has the size {symbol}")


class _Tree:
    """Statements under construction; a path that was read once is kept in a variable."""

    def __init__(self, parameters: Sequence[str]) -> None:
        self.parameters = list(parameters)
        self.body: list[ast.stmt] = []
        self._made = 0
        self.constants: dict[str, Any] = {}
        self._variables: dict[tuple[str, tuple[Any, ...]], ast.expr] = {}

    def keep(self, value: Any) -> ast.expr:
        """Refers to an object at hand."""
        if value is None or isinstance(value, (bool, str)) or type(value) in (int, float):
            return ast.Constant(value)
        name = f"kept_{len(self.constants)}"
        self.constants[name] = value
        return _name(name)

    def at(self, path: SourcePath) -> ast.expr:
        """The value at a path; each of its steps is read once."""
        current = _name(_parameter(path.root))
        for length in range(1, len(path.steps) + 1):
            key = (path.root, path.steps[:length])
            if key not in self._variables:
                self._variables[key] = self.variable(_step(current, path.steps[length - 1]))
            current = self._variables[key]
        return current

    def variable(self, value: ast.expr) -> ast.expr:
        """Refers to a value that is worked out once, here."""
        if isinstance(value, ast.Constant):
            return value
        name = f"value_{self._made}"
        self._made += 1
        self.body.append(ast.Assign([ast.Name(name, ast.Store())], value))
        return _name(name)

    def chain(self, start: ast.expr, path: SourcePath) -> ast.expr:
        for step in path.steps:
            start = _step(start, step)
        return start

    def comes_with_the_call(self, path: SourcePath) -> bool:
        return not path.is_global and path.root in self.parameters

    def compiled(self, names: Sequence[str], body: list[ast.stmt]) -> Callable[..., Any]:
        arguments = ast.arguments(
            posonlyargs=[],
            args=[ast.arg(name if name == _OUTPUTS else _parameter(name)) for name in names],
            kwonlyargs=[],
            kw_defaults=[],
            defaults=[],
        )
        definition = ast.FunctionDef("read", arguments, body, [])
        if hasattr(ast, "TypeAlias"):
            definition.type_params = []  # type: ignore[attr-defined]
        module = ast.fix_missing_locations(ast.Module([definition], []))
        (code,) = (each for each in compile(module, "<airgraph cache>", "exec").co_consts if isinstance(each, CodeType))
        return FunctionType(code, {**self.constants, "__builtins__": {}})


def _step(owner: ast.expr, step: Step) -> ast.expr:
    if isinstance(step, TypeOf):
        return ast.Attribute(owner, "__class__", ast.Load())
    if isinstance(step, Attribute):
        return ast.Attribute(owner, step.name, ast.Load())
    if isinstance(step, Item):
        return ast.Subscript(owner, ast.Constant(step.key), ast.Load())
    sizes = _call(ast.Attribute(owner, step.what, ast.Load()))
    return sizes if step.dim is None else ast.Subscript(sizes, ast.Constant(step.dim), ast.Load())


def _call(function: ast.expr, *args: ast.expr) -> ast.expr:
    return ast.Call(function, list(args), [])


def _name(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _parameter(name: str) -> str:
    """A parameter's name in the built function, which shares no name with its variables."""
    if not name.isidentifier():
        raise CacheError(f"{name!r} is not the name of a parameter")
    return f"given_{name}"
