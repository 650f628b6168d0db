"""Values within lists and tuples: what operators are given and give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

__all__ = ["leaves", "leaves_of", "mapped"]

_Kind = TypeVar("_Kind")


def leaves(value: Any) -> Iterator[Any]:
    """What lies in lists and tuples, however deep, in order."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def leaves_of(kind: type[_Kind], value: Any) -> Iterator[_Kind]:
    """Those of a kind."""
    return (leaf for leaf in leaves(value) if isinstance(leaf, kind))


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Lists and tuples like these, with what a function makes of each leaf."""
    if isinstance(value, list):
        return [mapped(function, item) for item in value]
    if isinstance(value, tuple):
        return tuple(mapped(function, item) for item in value)
    return function(value)
