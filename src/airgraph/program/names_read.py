"""What code reads of its module and of others, as far as names and the objects behind them say it."""

from __future__ import annotations

import dis
import importlib.util
import inspect
import operator
import sys
import types
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from airgraph.errors import Unwritable
from airgraph.program.code_identity import digest_of_code, goes_by_version, is_under_torch
from airgraph.torch_internals import dynamo_texts

__all__ = [
    "FROZEN",
    "MISSING",
    "Read",
    "UsedCode",
    "goes_through_values",
    "held_by",
    "is_at_hand",
    "named_function",
    "names_in",
    "nested",
    "qualified_name",
    "reads_by_text",
    "reads_of",
]

MISSING = object()
# How the file of code begins that is part of Python itself.
FROZEN = "<frozen "
# (module, name, value)
Read = tuple[str, str, Any]
# What a module is told by its loader, which says nothing of the program.
_OF_MODULES = {
    "__annotations__", "__builtins__", "__cached__", "__debug__", "__doc__", "__file__", "__loader__", "__name__",
    "__package__", "__path__", "__spec__",
}  # fmt: skip
# By what code finds values of modules whose names it makes, and values of any kind.
_BY_TEXT = {"getattr", "vars", "__dict__", "__getattribute__", "__getattr__"}
_GETTERS = (operator.attrgetter, operator.methodcaller)
_FIND_BY_TEXT = (
    getattr, vars, *_GETTERS, inspect.getmembers, inspect.getattr_static,
    getattr(inspect, "getmembers_static", getattr),
)  # fmt: skip
_BY_ANY_TEXT = {
    "__globals__", "__import__", "_getframe", "currentframe", "eval", "exec", "f_back", "f_globals", "f_locals",
    "get_objects", "get_referents", "get_referrers", "import_module",
}  # fmt: skip
_GO_THROUGH = {"list", "tuple", "next", "iter", "enumerate", "map", "zip", "pop", "reduce"}


@dataclass(frozen=True, slots=True)
class UsedCode:
    """Code that was traced, or that ran while tracing, and the globals it runs in. inlined: by Dynamo."""

    code: CodeType
    namespace: Mapping[str, Any]
    inlined: bool

    @property
    def module(self) -> str:
        return str(self.namespace.get("__name__", ""))

    @property
    def is_foreign(self) -> bool:
        """Whether it is compared with the versions of what traces, and not by itself."""
        module = self.module
        if not module:
            # Such as what FX writes. What Dynamo inlines must be told from others.
            return not self.inlined
        known = goes_by_version(module) or is_under_torch(module)
        return known or self.code.co_filename.startswith(FROZEN)


def is_at_hand(each: UsedCode, function_globals: Mapping[str, Any]) -> bool:
    """Whether its globals are found by its module's name."""
    namespaces = (getattr(sys.modules.get(each.module), "__dict__", None), function_globals)
    return any(namespace is each.namespace for namespace in namespaces)


def reads_of(each: UsedCode) -> Iterator[Read]:
    """Of the globals that code may read, that within it too, and what it names of modules, also of those that it
    imports itself."""
    names = names_in(each.code)
    own = qualified_name(each.code, each.namespace)
    function = named_function(each.namespace, own)
    if function is not None and function.__code__ is each.code:
        # With its defaults and closure; a process may also have imported it before its file was edited.
        yield each.module, own, held_by(each.namespace, own)
    for name in sorted(names & each.namespace.keys()):
        yield each.module, name, each.namespace[name]
        yield from _reads_within(each.namespace[name], names, set())
    for module in _imported_by(each):
        yield from _reads_within(module, names, set())


def _reads_within(module: Any, names: Set[str], entered: set[int]) -> Iterator[Read]:
    if isinstance(module, types.ModuleType) and id(module) not in entered:
        entered.add(id(module))
        for name in sorted(names & vars(module).keys()):
            value = vars(module)[name]
            yield module.__name__, name, value
            yield from _reads_within(value, names, entered)


def _imported_by(each: UsedCode) -> Iterator[types.ModuleType]:
    package = each.namespace.get("__package__")
    for _, code in nested(each.code):
        instructions = list(dis.get_instructions(code))
        for level, _, instruction in zip(instructions, instructions[1:], instructions[2:], strict=False):
            if instruction.opname != "IMPORT_NAME":
                continue
            try:
                name = importlib.util.resolve_name("." * (level.argval or 0) + instruction.argval, package)
            except (ImportError, TypeError):
                continue
            parts = name.split(".")
            found = (sys.modules.get(".".join(parts[:count])) for count in range(1, len(parts) + 1))
            yield from (module for module in found if isinstance(module, types.ModuleType))


def names_in(code: CodeType) -> set[str]:
    return {name for _, each in nested(code) for name in each.co_names} - _OF_MODULES


def reads_by_text(each: UsedCode) -> Iterator[Read]:
    """Of all that code may find by names that it makes: nothing else says which. Raises Unwritable for what may look at
    anything."""
    words = {name for _, code in nested(each.code) for name in code.co_names}
    if found := words & _BY_ANY_TEXT:
        raise Unwritable(f"{each.code.co_name} ran while tracing, and uses {min(found)}, which may look at anything")
    if "globals" in words:
        yield from _all_of(each.module, each.namespace)
    reads = list(reads_of(each))
    if words & _BY_TEXT or any(_finds_by_text(value) for _, _, value in reads):
        for _, _, value in reads:
            if isinstance(value, types.ModuleType) and not goes_by_version(value.__name__):
                yield from _all_of(value.__name__, vars(value))


def _finds_by_text(value: Any) -> bool:
    return isinstance(value, _GETTERS) or any(value is each for each in _FIND_BY_TEXT)


def _all_of(module: str, namespace: Mapping[str, Any]) -> Iterator[Read]:
    return (
        (module, name, value)
        for name, value in sorted(namespace.items())
        if name not in _OF_MODULES and not name.startswith(dynamo_texts.GLOBALS)
    )


def goes_through_values(code: CodeType) -> bool:
    """Whether it may look at the order of a set."""
    codes = [each for _, each in nested(code)]
    names = {name for each in codes for name in each.co_names}
    opcodes = {instruction.opname for each in codes for instruction in dis.get_instructions(each)}
    return "GET_ITER" in opcodes or not names.isdisjoint(_GO_THROUGH)


def nested(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    yield code.co_name, code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested(constant)


def qualified_name(code: CodeType, namespace: Mapping[str, Any]) -> str:
    """Python 3.10 knows only its last part; there the module and its classes are searched for the code."""
    known: str | None = getattr(code, "co_qualname", None)
    if known is not None:
        return known
    return next(_places_of(digest_of_code(code), namespace, set()), code.co_name)


def _places_of(digest: str, namespace: Mapping[str, Any], entered: set[type]) -> Iterator[str]:
    for name, value in list(namespace.items()):
        if isinstance(value, FunctionType) and digest_of_code(value.__code__) == digest:
            yield name
        elif isinstance(value, type) and not goes_by_version(value.__module__) and value not in entered:
            entered.add(value)
            yield from (f"{name}.{place}" for place in _places_of(digest, vars(value), entered))


def held_by(namespace: Mapping[str, Any], name: str) -> Any:
    """What is found there under a qualified name, or MISSING."""
    found: Any = namespace.get(name.partition(".")[0], MISSING)
    for part in name.split(".")[1:]:
        found = vars(found).get(part, MISSING) if hasattr(found, "__dict__") else MISSING
    return found


def named_function(namespace: Mapping[str, Any], name: str) -> FunctionType | None:
    """The function or method of this qualified name."""
    found = held_by(namespace, name)
    found = getattr(found, "__func__", found)
    return found if isinstance(found, FunctionType) else None
