"""What decides how graphs are rewritten, as one short text: a compiled graph is only as good as the passes it saw."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FunctionType
from typing import Any

from airgraph.options import Options
from airgraph.passes.pattern_fusion import registered_forms, registered_functions
from airgraph.program import nodes, operators, trees
from airgraph.program.code_identity import digest_of_code, held_text, identity_of, is_code
from airgraph.program.held_values import digest_of_value

__all__ = [
    "code_of",
    "deep_identity",
    "fingerprint",
    "held_by",
    "identity",
    "own_sources",
    "source_of",
    "sources_of_the_program_s",
]

# What passes know from elsewhere.
_KNOWLEDGE = (nodes, operators, trees)


def fingerprint(options: Options) -> str:
    """32 hexadecimal digits that change with the sources of the passes, the user's passes and registered replacements.

    A pass of the user's counts by its source and all that it holds, or by what its method `uuid` returns if it has one,
    as for Inductor. Raises Unwritable for one that holds what cannot be compared.
    """
    digest = hashlib.sha256(own_sources().encode())
    for function in _of_the_program(options):
        digest.update(deep_identity(function).encode())
        digest.update(b"\0")
    digest.update("\0".join(registered_forms()).encode())
    return digest.hexdigest()[:32]


def sources_of_the_program_s(options: Options) -> Mapping[str, str]:
    """The passes and replacements of the user's by name, each with its source, whatever it holds."""
    named = [_target(function) for function in _of_the_program(options) if function is not None]
    return {_name(target): _source(target) for target in named}


def _of_the_program(options: Options) -> list[Callable[..., Any] | None]:
    return [options.post_grad_custom_pre_pass, options.post_grad_custom_post_pass, *registered_functions()]


@functools.cache
def own_sources() -> str:
    """A digest of this package's files, and of what they know about operators; 32 hexadecimal digits."""
    digest = hashlib.sha256()
    for path in [*sorted(Path(__file__).parent.rglob("*.py")), *(Path(str(each.__file__)) for each in _KNOWLEDGE)]:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


def identity(function: Callable[..., Any] | None) -> str:
    """What tells a function, class or callable object from another in all processes.

    Its name, source, and what it closes over or holds; or what its `uuid` returns.
    """
    if function is None:
        return ""
    if isinstance(function, functools.partial):
        return f"partial {identity(function.func)} {held_text((function.args, function.keywords))}"
    if _has_uuid(function):
        return repr(function.uuid())  # type: ignore[attr-defined]
    target = _target(function)
    return f"{_name(target)}\n{_source(target)}\n{_held(function)}"


def source_of(function: Callable[..., Any]) -> str:
    """Name and source, whatever it holds."""
    target = _target(function)
    return f"{_name(target)}\n{_source(target)}"


def code_of(function: Callable[..., Any]) -> str:
    """A digest of the code itself; empty where it is not Python's.

    Sources tell less: those of a decorated function are what it decorates, two functions may be of one line, and
    `python -O` leaves assertions out.
    """
    code = getattr(_target(function), "__code__", None)
    return "" if code is None else digest_of_code(code)


def held_by(function: FunctionType) -> str:
    """What a function has as defaults and closes over, as `identity` compares it."""
    cells = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):
            # An empty cell raises.
            cells.append(cell.cell_contents)
    return held_text((function.__defaults__, function.__kwdefaults__, cells))


def _target(function: Any) -> Any:
    """What a function or an object that is called is written as: a function or class."""
    if isinstance(function, functools.partial):
        return _target(function.func)
    if _has_uuid(function) and hasattr(function, "__wrapped__"):
        return _target(function.__wrapped__)
    return function if inspect.isroutine(function) or inspect.isclass(function) else type(function)


def _name(target: Any) -> str:
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__qualname__', repr(target))}"


def _source(target: Any) -> str:
    try:
        return inspect.getsource(target)
    except (OSError, TypeError):
        # Typed into an interpreter, or not written in Python.
        code = getattr(target, "__code__", None)
        return f"{code.co_code.hex()}\n{code.co_consts!r}" if code is not None else ""


def deep_identity(function: Callable[..., Any] | None) -> str:
    """`identity`, and a digest of all that it holds, however deep, unless it has a `uuid`.

    Raises Unwritable for what cannot be compared in another process.
    """
    text = identity(function)
    return text if function is None or _has_uuid(function) else f"{text}\n{digest_of_value(function).text}"


def _has_uuid(function: Callable[..., Any]) -> bool:
    return not isinstance(function, functools.partial) and callable(getattr(function, "uuid", None))


def _held(function: Callable[..., Any]) -> str:
    """What an object holds, or a function closes over and has as defaults."""
    if is_code(function):
        return identity_of(function)
    return held_text(vars(function)) if hasattr(function, "__dict__") else ""
