"""What tells one function, class or module from another, in this process and the next."""

from __future__ import annotations

import hashlib
import types
from typing import Any

import torch

__all__ = ["CODE", "digest_of_code", "held_text", "identity_of", "is_code"]

_OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
_WRAPPERS = (types.CodeType, types.WrapperDescriptorType, types.MethodDescriptorType, types.MethodWrapperType)
CODE = (
    types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, type, *_WRAPPERS, *_OPERATORS
)  # fmt: skip
_DEEPEST = 4


def is_code(value: Any) -> bool:
    """Whether a value is told from others by what it does: a function, method, class or module."""
    return isinstance(value, CODE)


def identity_of(value: Any, depth: int = 0) -> str:
    """Its full name; of a function also a digest of its code, defaults, and what it closes over."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, types.CodeType):
        return f"code {digest_of_code(value)[:16]}"
    if isinstance(value, _OPERATORS):
        return f"operator {value}"
    name = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    if isinstance(value, types.MethodType):
        return f"{name} of {type(value.__self__).__qualname__}: {identity_of(value.__func__, depth)}"
    if not isinstance(value, types.FunctionType):
        return name
    parts = [digest_of_code(value.__code__)]
    held = [value.__defaults__, value.__kwdefaults__, *(_contents(cell) for cell in value.__closure__ or ())]
    parts += [held_text(each, depth) for each in held]
    return f"{name} {hashlib.sha256(' '.join(parts).encode()).hexdigest()[:16]}"


def digest_of_code(code: types.CodeType) -> str:
    """Without its lines: a function that was typed again is the same."""
    digest = hashlib.sha256(code.co_code)
    for part in (code.co_names, code.co_varnames, code.co_freevars):
        digest.update(repr(part).encode())
    for constant in code.co_consts:
        digest.update(_constant(constant).encode())
    return digest.hexdigest()


def _constant(constant: Any) -> str:
    if isinstance(constant, types.CodeType):
        return digest_of_code(constant)
    # The order of a set differs from process to process.
    return repr(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant)


def held_text(value: Any, depth: int = 0) -> str:
    """Constants, containers and code as text that is the same in all processes; of others the class."""
    if isinstance(value, (tuple, list)):
        return f"({','.join(held_text(each, depth) for each in value)})"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key}:{held_text(each, depth)}' for key, each in value.items())}}}"
    if isinstance(value, (bool, int, float, str, bytes, complex, type(None))):
        return repr(value)
    if is_code(value) and depth < _DEEPEST:
        return identity_of(value, depth + 1)
    return type(value).__qualname__


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None
