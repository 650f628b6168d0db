"""Where the paths of a function begin: its parameters, the object it is bound to, what it closes over, its globals."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import CellType, FunctionType, MethodType
from typing import Any

import torch

from airgraph.cache.format.source_path import Item, SourcePath

__all__ = ["Reader", "Roots", "without_grad_mode"]


@dataclass(frozen=True, slots=True)
class Roots:
    """function: without what it is bound to. parameters: names in order, without `self`. owner: the object that a
    method is bound to, by what it calls it.

    cells: what the function closes over. first: of a method whose object is the first of *args, as in a decorator's
    wrapper, the name of these and a tuple of the object: it comes with each call, and is always this one. several: the
    names of *args and **kwargs.
    """

    function: FunctionType
    parameters: tuple[str, ...]
    owner: Mapping[str, Any]
    cells: Mapping[str, CellType]
    function_globals: Mapping[str, Any]
    first: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    several: frozenset[str] = frozenset()

    @classmethod
    def of(cls, function: Any, first: tuple[Any, ...] = ()) -> Roots:
        """first: the first of the function's *args at each call, or nothing."""
        inner = getattr(function, "__func__", function)
        names = inner.__code__.co_freevars
        parameters = inspect.signature(function, follow_wrapped=False).parameters
        kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
        return cls(
            function=inner,
            parameters=tuple(parameters),
            owner={inner.__code__.co_varnames[0]: function.__self__} if inner is not function else {},
            cells=dict(zip(names, inner.__closure__ or (), strict=True)),
            function_globals=inner.__globals__,
            first={inner.__code__.co_varnames[inner.__code__.co_kwonlyargcount]: first} if first else {},
            several=frozenset(name for name, each in parameters.items() if each.kind in kinds),
        )

    def body(self) -> Body:
        """What the function runs now."""
        keywords = self.function.__kwdefaults__ or {}
        return Body((self.function.__code__, self.function.__defaults__, *keywords, *keywords.values()))

    def names(self) -> set[str]:
        return {*self.parameters, *self.owner, *self.cells}

    def fixed(self) -> dict[str, Any]:
        """Values that do not come with a call, as they are now; a cell that is still empty is left out."""
        filled = {name: cell.cell_contents for name, cell in self.cells.items() if _is_filled(cell)}
        return {**self.owner, **self.first, **filled}

    def is_fixed(self, path: SourcePath) -> bool:
        """Whether what lies there does not come with a call, or always is the same object."""
        if path.root in self.first:
            return path.steps[:1] == (Item(0),)
        return path.root in self.owner or path.root in self.cells

    def argument_of(self, path: SourcePath) -> tuple[str, Any]:
        """By which argument of a call it comes: of *args and **kwargs each is one."""
        return path.root, path.steps[0] if path.root in self.several and path.steps else None

    def at(self, values: Sequence[Any]) -> Reader:
        """Reads paths for a call with these values of the parameters."""
        return Reader({**self.fixed(), **dict(zip(self.parameters, values, strict=True))}, self.function_globals)


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """What `function.__code__ = ...` and the like replace, as IPython's autoreload does."""

    parts: tuple[object, ...]

    def is_still(self, other: Body) -> bool:
        same_count = len(self.parts) == len(other.parts)
        return same_count and all(a is b for a, b in zip(self.parts, other.parts, strict=True))


@dataclass(frozen=True, slots=True)
class Reader:
    """Call it with a path; raises LookupError, AttributeError or TypeError where nothing is."""

    locals: Mapping[str, Any]
    function_globals: Mapping[str, Any]

    def __call__(self, path: SourcePath) -> Any:
        return path.read(self.locals, self.function_globals)


def without_grad_mode(function: Any) -> Any:
    """What `torch.no_grad` and its like have decorated, or the function itself; bound as it is."""
    inner = getattr(function, "__func__", function)
    factory = dict(zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True)).get("ctx_factory")
    modes = (torch.no_grad, torch.enable_grad, torch.inference_mode, torch.set_grad_enabled)
    wrapped = getattr(inner, "__wrapped__", None)
    made_by = getattr(factory.cell_contents, "__self__", None) if factory is not None else None
    if not isinstance(made_by, modes) or not isinstance(wrapped, FunctionType):
        return function
    found = wrapped if inner is function else MethodType(wrapped, function.__self__)
    return without_grad_mode(found)


def _is_filled(cell: CellType) -> bool:
    # An empty cell's contents raise ValueError.
    with contextlib.suppress(ValueError):
        return cell.cell_contents is cell.cell_contents
    return False
