"""Dynamo at its work: its translators, what runs within them, and its settings."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

__all__ = [
    "backend_names",
    "clear_failed_floats",
    "code_that_asks_for_addresses",
    "code_that_defers",
    "code_that_inlines",
    "code_that_stores_constants",
    "copy_of_graph",
    "current_translator",
    "debug_dir",
    "graph_breaks",
    "guards_on_what_is_one",
    "is_switched_off",
    "keep_sizes",
    "register_backend",
    "replace_float_wrapping",
    "settings",
    "shapes_by_their_sizes",
    "traced_function",
    "when_imported",
]

_AFTER_A_BREAK = re.compile(r"torch_dynamo_resume_in_(\w+)_at_\d+")


def settings(**changes: Any) -> AbstractContextManager[Any]:
    """Settings of torch._dynamo.config for a block."""
    return torch._dynamo.config.patch(**changes)


def is_switched_off() -> bool:
    """Whether nothing is traced: `torch._dynamo.config.disable`, or `torch.compiler.set_stance`."""
    from torch._dynamo import config, eval_frame

    stance = getattr(getattr(eval_frame, "_stance", None), "stance", "default")
    return bool(config.disable) or stance != "default"


def backend_names() -> list[str]:
    return torch._dynamo.list_backends(exclude_tags=())


def register_backend(backend: Callable[..., Any], name: str) -> None:
    """Under a name, which another backend loses if it has it."""
    from torch._dynamo.backends import registry

    registry._COMPILER_FNS.pop(name, None)
    registry.register_backend(backend, name)


def when_imported(action: Callable[[], None]) -> None:
    """Act now if Dynamo is imported, or else right after it is, and after what others do then."""
    if "torch._dynamo" in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _Once("torch._dynamo", action))


class _Once(MetaPathFinder):
    """Finds one module as the finders after it do, and acts when it is imported."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name, self._action = name, action

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        loader = spec.loader
        execute = loader.exec_module

        def execute_and_act(module: ModuleType) -> None:
            execute(module)
            self._action()

        loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec


def keep_sizes(tensor: torch.Tensor) -> None:
    """Let a tensor's sizes be numbers where a function is traced for all sizes."""
    from torch._dynamo import mark_static

    mark_static(tensor)


def debug_dir() -> str:
    """Where TORCH_COMPILE_DEBUG=1 writes."""
    from torch._dynamo.utils import get_debug_dir

    return get_debug_dir()


def current_translator() -> Any:
    """Of the function that is traced. Call inside a backend."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    return InstructionTranslator.current_tx()


def graph_breaks() -> list[tuple[str, str]]:
    """Of each break that a function was compiled with, whatever its backend, since torch._dynamo.reset(): Dynamo's
    text, and the stack of the user's code."""
    if "torch._dynamo.utils" not in sys.modules:
        return []
    from torch._dynamo.utils import graph_break_reasons

    return [(each.reason, "".join(traceback.format_list(each.user_stack))) for each in [*graph_break_reasons]]


def traced_function() -> str | None:
    """The function that is traced, as its author would call it, such as `Model.forward`; None outside of a trace."""
    from torch._dynamo.external_utils import wrap_inline
    from torch._dynamo.symbolic_convert import InstructionTranslator

    try:
        root = InstructionTranslator.current_tx().output.root_tx
        code, values = root.f_code, root.f_locals
    except AttributeError:
        return None
    if code in wrap_inline.__code__.co_consts and "fn" in values:
        # Around what torch itself defines.
        return _called(values["fn"])
    name = code.co_name
    # What comes after a graph break is a function of Dynamo's.
    if found := _AFTER_A_BREAK.fullmatch(name):
        name = f"{found[1]} from line {code.co_firstlineno}"
    owner = _first_argument(code, values)
    # A decorator's function has a name of its own.
    for class_ in type(owner).__mro__:
        for key, member in vars(class_).items():
            if getattr(member, "__code__", None) is code and _closes_over(member, values):
                return f"{type(owner).__name__}.{key}"
    return f"{type(owner).__name__}.{name}" if code.co_varnames[:1] == ("self",) else str(name)


def _first_argument(code: CodeType, values: Mapping[str, Any]) -> Any:
    """None where there is none."""
    if code.co_argcount:
        return values.get(code.co_varnames[0])
    if code.co_flags & inspect.CO_VARARGS:
        rest = values.get(code.co_varnames[code.co_kwonlyargcount])
        return rest[0] if isinstance(rest, tuple) and rest else None
    return None


def _closes_over(function: Any, values: Mapping[str, Any]) -> bool:
    """Whether a function is the one with these values, of all that share its code."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return all(name not in values or values[name] is cell.cell_contents for name, cell in cells)


def _called(function: Any) -> str:
    if isinstance(function, torch.nn.Module):
        return f"{type(function).__name__}.forward"
    name = getattr(function, "__name__", type(function).__name__)
    owner = getattr(function, "__self__", None)
    return f"{type(owner).__name__}.{name}" if isinstance(owner, torch.nn.Module) else name


def code_that_asks_for_addresses() -> Mapping[CodeType, str]:
    """What runs for calls of `id`, `hash`, `repr` and `str`, by the name of the function. The frame's locals have the
    translator as `tx`, and the argument as `arg` or first of `args`."""
    from torch._dynamo.variables.builtin import BuiltinVariable

    methods = ((name, getattr(BuiltinVariable, f"call_{name}", None)) for name in ("id", "hash", "repr", "str"))
    # Before torch 2.13 `hash` is no such method.
    return {method.__code__: name for name, method in methods if method is not None}


def code_that_defers() -> CodeType:
    """Runs once for each value that is not looked into before it is used, such as those of `sys.modules`."""
    from torch._dynamo.variables.lazy import LazyCache

    return LazyCache.__init__.__code__


def code_that_inlines() -> CodeType:
    """Runs once for each function that is inlined."""
    from torch._dynamo.symbolic_convert import InliningInstructionTranslator

    return InliningInstructionTranslator.__init__.__code__


def code_that_stores_constants() -> CodeType:
    """Runs once for each result of `torch.compiler.assume_constant_result`."""
    from torch._dynamo.variables import functions

    return functions.invoke_and_store_as_constant.__code__


def copy_of_graph(gm: GraphModule) -> GraphModule:
    """The same graph over the same modules, with what AOTAutograd asks Dynamo's graphs for."""
    copied = Graph()
    made: dict[Node, Node] = {}
    output = copied.graph_copy(gm.graph, made)
    copied.output(output)
    for node in gm.graph.find_nodes(op="placeholder"):
        made[node]._dynamo_source = getattr(node, "_dynamo_source", None)
    module = GraphModule(gm, copied)
    module.meta = dict(gm.meta)
    for name in ("_param_name_to_source", "_backend_id"):
        if hasattr(gm, name):
            setattr(module, name, getattr(gm, name))
    return module


@contextmanager
def guards_on_what_is_one() -> Iterator[None]:
    """Traces within guard that what a function finds by two paths is one object, also where only one path is global.

    Dynamo leaves those out, "technically", as it says: a function called with a global that it reads itself would
    take any other argument for that global.
    """
    from torch._dynamo.guards import GuardBuilder
    from torch._dynamo.variables import builder

    make = builder.make_dupe_guard

    def make_for_all(source: Any, other: Any) -> Any:
        made = make(source, other)
        if made is None and other and other != source:
            return functools.partial(GuardBuilder.DUPLICATE_INPUT, source_b=other)
        return made

    builder.make_dupe_guard = make_for_all  # type: ignore[assignment]
    try:
        yield
    finally:
        builder.make_dupe_guard = make


@contextmanager
def shapes_by_their_sizes() -> Iterator[None]:
    """Traces within rebuild `x.shape` from its sizes, as they do `x.size()`, instead of reading it of `x` once more."""
    from torch._dynamo.variables import TensorVariable
    from torch._dynamo.variables.lists import SizeVariable

    read = TensorVariable.var_getattr

    def read_by_sizes(self: Any, tx: Any, name: str) -> Any:
        found = read(self, tx, name)
        if isinstance(found, SizeVariable):
            found.source = None
        return found

    TensorVariable.var_getattr = read_by_sizes  # type: ignore[method-assign]
    try:
        yield
    finally:
        TensorVariable.var_getattr = read  # type: ignore[method-assign]


def clear_failed_floats() -> None:
    """Forget which floats an earlier trace could not take as tensors."""
    from torch._dynamo.symbolic_convert import TensorifyState

    TensorifyState.clear()


def replace_float_wrapping(make: Callable[[Callable[[Any, float], Any]], Callable[[Any, float], Any]]) -> None:
    """For good: `make` is given how a float becomes a variable, and returns how it shall."""
    from torch._dynamo.variables.builder import VariableBuilder

    VariableBuilder.wrap_symfloat = make(VariableBuilder.wrap_symfloat)  # type: ignore[method-assign, assignment]
