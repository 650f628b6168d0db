"""Turns the paths of a cached graph into a function that collects its arguments from those of a call.

The function is built as a syntax tree from parsed paths: names, constant keys and comparisons. No text of a cache file
is ever compiled.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

import torch

from airgraph.cache.conditions import Condition, form_of_tensor
from airgraph.cache.manifest import CachedInput, Manifest
from airgraph.cache.source_path import Attribute, Item, Size, SourcePath, parse
from airgraph.cache.structure import build_expression
from airgraph.errors import CacheError

__all__ = ["build_reader", "build_result"]

_ARGUMENTS = "arguments"
_OUTPUTS = "outputs"
_BY_IDENTITY = (bool, type(None), torch.dtype, torch.layout, torch.memory_format)


def build_reader(
    manifest: Manifest, parameters: Sequence[str], roots: Mapping[str, Any], fixed: Sequence[Any]
) -> Callable[..., list[Any] | None]:
    """A function of the call's parameters that returns the graph's arguments, or None where a condition does not hold.

    parameters: names in order; roots: their values at some call, for the classes of conditions. fixed: the graph's
    arguments, of which those that come from elsewhere than the parameters are taken as they are.
    """
    tree = _Tree(parameters)
    for condition in manifest.conditions:
        if condition.path.root in parameters and not condition.path.is_global:
            tree.require(condition, roots)
    for index, each in enumerate(manifest.inputs):
        if each.path.root in parameters:
            tree.take(index, each)
    return tree.function(list(fixed))


def build_result(manifest: Manifest, parameters: Sequence[str], owner: Mapping[str, Any]) -> Callable[..., Any]:
    """A function of the graph's outputs and the call's parameters that returns what the cached function returns.

    owner: the values of roots that are no parameters. Raises CacheError for a structure that cannot be built.
    """
    tree = _Tree(parameters)

    def output(index: int) -> ast.expr:
        return ast.Subscript(_name(_OUTPUTS), ast.Constant(index), ast.Load())

    def argument(text: str) -> ast.expr:
        path = parse(text)
        if path.root in parameters:
            return tree.at(path)
        # Looked up at every call, so that it is what the object holds then.
        return tree.chain(tree.keep(owner[path.root]), path)

    result = build_expression(manifest.structure, output, argument, tree.keep)
    return tree.compiled([_OUTPUTS, *parameters], [*tree.body, ast.Return(result)])


class _Tree:
    """Statements under construction; a path that was read once is kept in a variable."""

    def __init__(self, parameters: Sequence[str]) -> None:
        self.parameters = list(parameters)
        self.body: list[ast.stmt] = []
        self.constants: dict[str, Any] = {}
        self._variables: dict[tuple[str, tuple[Any, ...]], str] = {}
        self._targets: list[ast.stmt] = []

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
                name = f"value_{len(self._variables)}"
                self.body.append(ast.Assign([ast.Name(name, ast.Store())], _step(current, path.steps[length - 1])))
                self._variables[key] = name
            current = _name(self._variables[key])
        return current

    def chain(self, start: ast.expr, path: SourcePath) -> ast.expr:
        for step in path.steps:
            start = _step(start, step)
        return start

    def take(self, index: int, each: CachedInput) -> None:
        value = self.at(each.path)
        if each.is_tensor:
            kinds = self.keep(torch.Tensor), self.keep(torch.nn.Parameter)
            is_tensor: list[ast.expr] = [ast.Compare(_class_of(value), [ast.Is()], [kind]) for kind in kinds]
            self._refuse_unless(ast.BoolOp(ast.Or(), is_tensor))
        else:
            self._refuse_unless(ast.Compare(_class_of(value), [ast.Is()], [self.keep(int)]))
        target = ast.Subscript(_name(_ARGUMENTS), ast.Constant(index), ast.Store())
        self._targets.append(ast.Assign([target], value))

    def require(self, condition: Condition, roots: Mapping[str, Any]) -> None:
        """Leaves the function with None where a condition does not hold."""
        value, expected = self.at(condition.path), condition.expected
        match condition.kind:
            case "equals" if isinstance(expected, _BY_IDENTITY):
                self._refuse_unless(ast.Compare(value, [ast.Is()], [self.keep(expected)]))
            case "equals":
                self._refuse_unless(ast.Compare(_class_of(value), [ast.Is()], [self.keep(type(expected))]))
                self._refuse_unless(ast.Compare(value, [ast.Eq()], [self.keep(expected)]))
            case "type":
                class_ = type(condition.path.read(roots, {}))
                self._refuse_unless(ast.Compare(_class_of(value), [ast.Is()], [self.keep(class_)]))
            case "length":
                self._refuse_unless(ast.Compare(_call(self.keep(len), value), [ast.Eq()], [self.keep(expected)]))
            case "keys":
                self._refuse_unless(ast.Compare(_call(self.keep(list), value), [ast.Eq()], [self.keep(expected)]))
            case "has":
                self._refuse_unless(_call(self.keep(hasattr), value, self.keep(expected)))
            case "lacks":
                self._refuse_unless(ast.UnaryOp(ast.Not(), _call(self.keep(hasattr), value, self.keep(expected))))
            case "inherits":
                own = _call(self.keep(getattr), value, self.keep("__dict__"), self.keep(()))
                self._refuse_unless(ast.Compare(self.keep(expected), [ast.NotIn()], [own]))
            case "named":
                self._refuse_unless(ast.Compare(value, [ast.Is()], [self.keep(condition.path.read(roots, {}))]))
            case "same":
                other = parse(expected)
                if other.root in self.parameters and not other.is_global:
                    self._refuse_unless(ast.Compare(value, [ast.Is()], [self.at(other)]))
            case "tensor":
                form = _call(self.keep(form_of_tensor), value, self.keep(expected[2]))
                self._refuse_unless(ast.Compare(form, [ast.Eq()], [self.keep(expected)]))

    def function(self, fixed: list[Any]) -> Callable[..., list[Any] | None]:
        copy = _call(self.keep(fixed.copy))
        body = [
            *self.body,
            ast.Assign([ast.Name(_ARGUMENTS, ast.Store())], copy),
            *self._targets,
            ast.Return(_name(_ARGUMENTS)),
        ]
        missing = self.keep((AttributeError, LookupError, TypeError))
        handler = ast.ExceptHandler(missing, None, [ast.Return(ast.Constant(None))])
        return self.compiled(self.parameters, [ast.Try(body, [handler], [], [])])

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

    def _refuse_unless(self, test: ast.expr) -> None:
        self.body.append(ast.If(ast.UnaryOp(ast.Not(), test), [ast.Return(ast.Constant(None))], []))


def _step(owner: ast.expr, step: Attribute | Item | Size) -> ast.expr:
    if isinstance(step, Attribute):
        return ast.Attribute(owner, step.name, ast.Load())
    if isinstance(step, Item):
        return ast.Subscript(owner, ast.Constant(step.key), ast.Load())
    sizes = _call(ast.Attribute(owner, step.what, ast.Load()))
    return sizes if step.dim is None else ast.Subscript(sizes, ast.Constant(step.dim), ast.Load())


def _class_of(value: ast.expr) -> ast.expr:
    return ast.Attribute(value, "__class__", ast.Load())


def _call(function: ast.expr, *args: ast.expr) -> ast.expr:
    return ast.Call(function, list(args), [])


def _name(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _parameter(name: str) -> str:
    """A parameter's name in the built function, which shares no name with its variables."""
    if not name.isidentifier():
        raise CacheError(f"{name!r} is not the name of a parameter")
    return f"given_{name}"
