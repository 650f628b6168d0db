"""What functions are given, checked by its kind: what is wrong is an OptionError that says what was expected."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from airgraph.errors import OptionError

__all__ = ["as_integer", "as_path", "boolean", "decompositions", "integer", "path", "shown"]

# Letters of a value that a message shows.
_MOST_SHOWN = 200


def shown(value: object) -> str:
    """A value as messages show it, on one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}… of type {type(value).__name__}"


def as_integer(value: object) -> int | None:
    """An integer of Python's, of NumPy's or of any other kind that can be an index; None for what is none, as True."""
    is_true_or_false = isinstance(value, bool) or (isinstance(value, torch.Tensor) and value.dtype is torch.bool)
    try:
        return None if is_true_or_false else operator.index(value)  # type: ignore[arg-type]
    except (TypeError, RuntimeError):
        # The latter for a tensor without values.
        return None


def integer(name: str, value: object, *, least: int, or_none: bool = False) -> int | None:
    """Raises OptionError for anything but an integer of at least `least`, or None where that is allowed."""
    found = as_integer(value)
    if (found is None or found < least) and not (or_none and value is None):
        none = " or None" if or_none else ""
        raise OptionError(f"{name}: expected an integer of at least {least}{none}, got {shown(value)}.")
    return found


def boolean(name: str, value: object, *, or_none: bool = False) -> bool | None:
    """Raises OptionError for anything but True and False, or None where that is allowed."""
    if not isinstance(value, bool) and not (or_none and value is None):
        expected = "True, False or None" if or_none else "True or False"
        raise OptionError(f"{name}: expected {expected}, got {shown(value)}.")
    return value


def as_path(value: object) -> str | None:
    """A path as a text; None for what is none, or cannot be one of a file system."""
    try:
        text = os.fspath(value)  # type: ignore[call-overload]
        os.fsencode(text)
    except (TypeError, UnicodeEncodeError):
        return None
    # An empty one would mean the working directory, unsaid.
    return text if isinstance(text, str) and text and "\0" not in text else None


def path(name: str, value: object) -> Path:
    """Raises OptionError for anything but a text that is not empty, or an object with such a path."""
    text = as_path(value)
    if text is None:
        raise OptionError(f"{name}: expected a path as a text that is not empty, got {shown(value)}.")
    return Path(text)


def decompositions(name: str, value: object) -> Mapping[Any, Callable[..., Any]] | None:
    """Raises OptionError for anything but None and a mapping of operators to what can be called."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise OptionError(f"{name}: expected None or a dict of operators to functions, got {shown(value)}.")
    for operator_, made in value.items():
        # PyTorch looks for an overload, and passes over whatever else is there.
        if not isinstance(operator_, torch._ops.OperatorBase):
            raise OptionError(
                f"{name}: expected operators such as torch.ops.aten.silu.default as keys, got {shown(operator_)}."
            )
        if not callable(made):
            raise OptionError(f"{name}: expected a function for {operator_}, got {shown(made)}.")
    return value
