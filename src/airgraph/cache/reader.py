"""Turns the paths of a cached graph into a function that collects its arguments from those of a call.

The function is built as a syntax tree from parsed paths: names, constant keys and comparisons. No text of a cache file
is ever compiled.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import CodeType, FunctionType
from typing import Any

import torch

from airgraph.cache.conditions import Condition
from airgraph.cache.manifest import CachedInput, Manifest
from airgraph.cache.roots import Reader
from airgraph.cache.source_path import Attribute, Item, Size, SourcePath, Step, TypeOf, parse
from airgraph.cache.structure import build_expression
from airgraph.errors import CacheError
from airgraph.program.code_identity import identity_of
from airgraph.program.inputs import InputRole

__all__ = ["build_reader", "build_result"]

_ARGUMENTS = "arguments"
_OUTPUTS = "outputs"
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_BY_IDENTITY = (bool, type(None), torch.dtype, torch.layout, torch.memory_format)


def build_reader(
    manifest: Manifest, parameters: Sequence[str], read: Reader, taken: Sequence[Any]
) -> Callable[..., list[Any] | None]:
    """A function of the call's parameters that returns the graph's arguments, or None where a condition does not hold.

    After the arguments come the tensors and numbers that were only looked at. parameters: names in order. read: for the
    classes and functions of conditions, and for what does not come with the call. taken: of inputs that do not come
    with the call the tensor or number, of a size its tensor.
    """
    tree = _Tree(parameters)
    every = (*manifest.inputs, *manifest.looked_at)
    for condition in manifest.conditions:
        if tree.comes_with_the_call(condition.path):
            tree.require(condition, read)
        elif condition.kind == "same" and tree.comes_with_the_call(parse(condition.expected)):
            tree.require_same(parse(condition.expected), tree.keep(read(condition.path)))
    for index, (each, value) in enumerate(zip(every, taken, strict=True)):
        if tree.comes_with_the_call(each.path):
            tree.take(index, each)
        elif each.path.steps and isinstance(each.path.steps[-1], Size):
            tree.put(index, _step(tree.keep(value), each.path.steps[-1]))
    tensors = [each for each in every if each.is_tensor and tree.comes_with_the_call(each.path)]
    tree.require_distinct(tensors, frozenset(id(value) for value in taken if isinstance(value, torch.Tensor)))
    return tree.function(list(taken))


def build_result(manifest: Manifest, parameters: Sequence[str], fixed: Mapping[str, Any]) -> Callable[..., Any]:
    """A function of the graph's outputs and the call's parameters that returns what the cached function returns.

    fixed: the values of roots that do not come with a call. Raises CacheError for a structure that cannot be built.
    """
    tree = _Tree(parameters)
    outputs = len(manifest.graph["outputs"]["tuple"])

    def output(index: int) -> ast.expr:
        if not 0 <= index < outputs:
            raise CacheError(f"the graph has no output {index}")
        return ast.Subscript(_name(_OUTPUTS), ast.Constant(index), ast.Load())

    def argument(text: str) -> ast.expr:
        path = parse(text)
        if tree.comes_with_the_call(path):
            return tree.at(path)
        if path.is_global or path.root not in fixed:
            raise CacheError(f"the result holds {text}, which is no argument")
        # Looked up at every call, so that it is what the object holds then.
        return tree.chain(tree.keep(fixed[path.root]), path)

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
        self._classes: set[SourcePath] = set()

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

    def comes_with_the_call(self, path: SourcePath) -> bool:
        return not path.is_global and path.root in self.parameters

    def take(self, index: int, each: CachedInput) -> None:
        value = self.at(each.path)
        kinds = _TENSORS if each.is_tensor else (int,)
        is_kind: list[ast.expr] = [ast.Compare(self.type_of(value), [ast.Is()], [self.keep(kind)]) for kind in kinds]
        self._refuse_unless(ast.BoolOp(ast.Or(), is_kind) if len(is_kind) > 1 else is_kind[0])
        self.put(index, value)

    def put(self, index: int, value: ast.expr) -> None:
        target = ast.Subscript(_name(_ARGUMENTS), ast.Constant(index), ast.Store())
        self._targets.append(ast.Assign([target], value))

    def type_of(self, value: ast.expr) -> ast.expr:
        return _call(self.keep(type), value)

    def require_distinct(self, tensors: Sequence[CachedInput], fixed: frozenset[int]) -> None:
        """Tensors that tracing found to be different objects are so at a call.

        Only copied ones need be compared: of those used in place a replay compares the addresses with the capture's,
        and what is written shares no memory with what is copied.
        """
        copied = [each for each in tensors if each.plan.role is InputRole.USER]
        static = [each for each in tensors if each.plan.role is InputRole.STATIC]
        for position, each in enumerate(copied):
            value = self.at(each.path)
            self._refuse_unless(ast.Compare(_call(self.keep(id), value), [ast.NotIn()], [self.keep(fixed)]))
            for other in (*copied[position + 1 :], *static):
                self._refuse_unless(ast.Compare(value, [ast.IsNot()], [self.at(other.path)]))

    def require_same(self, path: SourcePath, expected: ast.expr) -> None:
        self._refuse_unless(ast.Compare(self.at(path), [ast.Is()], [expected]))

    def require(self, condition: Condition, read: Reader) -> None:
        """Leaves the function with None where a condition does not hold."""
        to_class = condition.path.steps_to_class
        if to_class is not None:
            self._require_class(replace(condition.path, steps=condition.path.steps[:to_class]), read)
            return
        value, expected = self.at(condition.path), condition.expected
        match condition.kind:
            case "equals" if isinstance(expected, _BY_IDENTITY):
                self._refuse_unless(ast.Compare(value, [ast.Is()], [self.keep(expected)]))
            case "equals" if type(expected) in (int, str):
                self._refuse_unless(ast.Compare(self.type_of(value), [ast.Is()], [self.keep(type(expected))]))
                self._refuse_unless(ast.Compare(value, [ast.Eq()], [self.keep(expected)]))
            case "type":
                self._require_class(condition.path, read)
            case "length":
                self._refuse_unless(ast.Compare(_call(self.keep(len), value), [ast.Eq()], [self.keep(expected)]))
            case "has":
                self._refuse_unless(_call(self.keep(hasattr), value, self.keep(expected)))
            case "lacks":
                self._refuse_unless(ast.UnaryOp(ast.Not(), _call(self.keep(hasattr), value, self.keep(expected))))
            case "inherits":
                own = ast.Attribute(value, "__dict__", ast.Load())
                self._refuse_unless(ast.Compare(self.keep(expected), [ast.NotIn()], [own]))
            case "member":
                self._refuse_unless(ast.Compare(value, [ast.Is()], [self.keep(read(condition.path))]))
            case "named":
                # The same object, or one that is made anew for each call, such as a lambda.
                known = ast.Compare(value, [ast.Is()], [self.keep(read(condition.path))])
                alike = ast.Compare(_call(self.keep(identity_of), value), [ast.Eq()], [self.keep(expected)])
                self._refuse_unless(ast.BoolOp(ast.Or(), [known, alike]))
            case "same":
                other = parse(expected)
                is_argument = self.comes_with_the_call(other)
                self.require_same(condition.path, self.at(other) if is_argument else self.keep(read(other)))
            case _:
                broken = _call(self.keep(condition.broken), _call(self.keep(_reading), value))
                self._refuse_unless(ast.Compare(broken, [ast.Is()], [self.keep(None)]))

    def _require_class(self, path: SourcePath, read: Reader) -> None:
        if path not in self._classes:
            self._classes.add(path)
            class_ = self.keep(type(read(path)))
            self._refuse_unless(ast.Compare(self.type_of(self.at(path)), [ast.Is()], [class_]))

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


def _step(owner: ast.expr, step: Step) -> ast.expr:
    if isinstance(step, TypeOf):
        return ast.Attribute(owner, "__class__", ast.Load())
    if isinstance(step, Attribute):
        return ast.Attribute(owner, step.name, ast.Load())
    if isinstance(step, Item):
        return ast.Subscript(owner, ast.Constant(step.key), ast.Load())
    sizes = _call(ast.Attribute(owner, step.what, ast.Load()))
    return sizes if step.dim is None else ast.Subscript(sizes, ast.Constant(step.dim), ast.Load())


def _reading(value: Any) -> Callable[[SourcePath], Any]:
    return lambda path: value


def _call(function: ast.expr, *args: ast.expr) -> ast.expr:
    return ast.Call(function, list(args), [])


def _name(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _parameter(name: str) -> str:
    """A parameter's name in the built function, which shares no name with its variables."""
    if not name.isidentifier():
        raise CacheError(f"{name!r} is not the name of a parameter")
    return f"given_{name}"
