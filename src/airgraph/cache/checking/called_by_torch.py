"""Functions that PyTorch calls while a graph is traced, and what they were given by whoever made them.

What an operator's kernel in Python closes over, is bound to or is a `functools.partial` of decides its results, and no
name says it. It is compared where a name leads to it; else nobody could find it again.
"""

from __future__ import annotations

import functools
import gc
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from airgraph.cache.format.source import Source
from airgraph.errors import Unwritable
from airgraph.program.code_identity import goes_by_version, is_code
from airgraph.program.held_values import digest_of_value
from airgraph.program.names_read import UsedCode, is_at_hand, named_function, qualified_name, reads_of

__all__ = ["Called", "sources_of_callables"]


@dataclass(frozen=True, slots=True)
class Called:
    """Code of the program's that PyTorch called. on: whose method it is. contents: of what it closes over."""

    code: CodeType
    on: list[Any] = field(default_factory=list)
    contents: list[tuple[Any, ...]] = field(default_factory=list)


# How far what a name leads to is looked through for a callable.
_DEPTH = 5


def sources_of_callables(
    called: Collection[Called],
    used: Iterable[UsedCode],
    function_globals: Mapping[str, Any],
    compared: Iterable[Any],
) -> Iterator[Source]:
    """The values by whose names the callables are found again.

    compared: values that are compared elsewhere. Raises Unwritable for a callable that holds something and is not
    found.
    """
    if not called:
        return
    own = [each for each in used if not each.is_foreign]
    named = {id(each.code): named_function(each.namespace, qualified_name(each.code, each.namespace)) for each in own}
    unknown = [each for each in _callables(called, named) if not _holds_only_code(each, _DEPTH)]
    unknown = [each for each in unknown if not any(_leads_to(value, each, _DEPTH) for value in compared)]
    if not unknown:
        return
    places = [
        (module, name, value, each)
        for each in own
        if is_at_hand(each, function_globals)
        for module, name, value in reads_of(each)
        if not isinstance(value, ModuleType) and not goes_by_version(module)
    ]
    for callable_ in unknown:
        found = next((place for place in places if _leads_to(place[2], callable_, _DEPTH)), None)
        if found is None:
            raise Unwritable(
                f"PyTorch calls {_name_of(callable_)} while it traces, and what that closes over, is bound to or has "
                "as arguments cannot be found again at another start. Reach it by a name of a module"
            )
        module, name, value, each = found
        file = each.namespace.get("__file__")
        yield Source(module, f"={name}", file if isinstance(file, str) else "", digest_of_value(value).text)


def _callables(called: Iterable[Called], named: Mapping[int, Any]) -> Iterator[Any]:
    """All that holds something for such code: what it was called on, functions but those of a module's own name, and
    what calls any of them with more."""
    referrers = gc.get_referrers(*(each.code for each in called))
    made = [each for each in referrers if isinstance(each, FunctionType)]
    functions: list[FunctionType] = []
    for each in called:
        yield from each.on
        # Of one code there may be others that close over something else, and were not called.
        for contents in each.contents or [()]:
            found = [function for function in made if _closes_over(function, each.code, contents)]
            functions += found
            if not found:
                # Out of the garbage collector's sight, see gc.freeze.
                yield contents
    yield from (each for each in functions if named.get(id(each.__code__)) is not each)
    if functions:
        yield from (each for each in gc.get_referrers(*functions) if isinstance(each, functools.partial))


def _closes_over(function: FunctionType, code: CodeType, contents: tuple[Any, ...]) -> bool:
    held = [_contents(cell) for cell in function.__closure__ or ()]
    return function.__code__ is code and len(held) == len(contents) and all(map(operator.is_, held, contents))


def _holds_only_code(value: Any, depth: int) -> bool:
    """Whether it says nothing that its code does not: classes, modules, functions that close over no other."""
    if value is None or isinstance(value, (type, ModuleType)):
        return True
    if depth == 0:
        return False
    if isinstance(value, FunctionType):
        if goes_by_version(value.__globals__.get("__name__")):
            return True
        held = [value.__defaults__, value.__kwdefaults__, *map(_contents, value.__closure__ or ())]
    elif isinstance(value, functools.partial):
        held = [value.func, value.args, value.keywords]
    elif isinstance(value, MethodType):
        held = [value.__self__, value.__func__]
    elif isinstance(value, (tuple, list, set, frozenset)):
        held = list(value)
    elif isinstance(value, Mapping):
        held = list(value.values())
    elif is_code(value):
        return True
    else:
        state = getattr(value, "__dict__", None)
        return state is not None and not state
    return all(_holds_only_code(each, depth - 1) for each in held)


def _leads_to(value: Any, wanted: Any, depth: int) -> bool:
    if value is wanted or (isinstance(value, MethodType) and value.__self__ is wanted):
        return True
    if depth == 0:
        return False
    if isinstance(value, FunctionType):
        held = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        held += [*map(_contents, value.__closure__ or ()), *vars(value).values()]
    elif isinstance(value, functools.partial):
        held = [value.func, *value.args, *value.keywords.values()]
    elif isinstance(value, MethodType):
        held = [value.__self__, value.__func__]
    elif isinstance(value, (tuple, list, set, frozenset)):
        held = list(value)
    elif isinstance(value, Mapping):
        held = list(value.values())
    elif isinstance(value, (type, ModuleType)):
        return False
    else:
        state = getattr(value, "__dict__", None)
        held = list(state.values()) if isinstance(state, dict) else []
    return any(_leads_to(each, wanted, depth - 1) for each in held)


def _name_of(callable_: Any) -> str:
    inner = callable_.func if isinstance(callable_, functools.partial) else callable_
    return str(getattr(inner, "__qualname__", f"a method of {type(inner).__qualname__}"))


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None
