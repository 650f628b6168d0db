"""Values within lists and tuples: what operators are given and give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["leaves", "leaves_of", "mapped"]

_Kind = TypeVar("_Kind")


def leaves(value: Any) -> list[Any]:
    """What lies in lists and tuples, however deep, in order."""
    if not isinstance(value, (list, tuple)):
        return [value]
    return [leaf for item in value for leaf in leaves(item)]


def leaves_of(kind: type[_Kind], value: Any) -> list[_Kind]:
    """Those of a kind, which is neither list nor tuple."""
    found: list[_Kind] = []
    _collect(kind, value, found)
    return found


def _collect(kind: type[_Kind], value: Any, found: list[_Kind]) -> None:
    if isinstance(value, kind):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            if isinstance(item, kind):
                found.append(item)
            elif isinstance(item, (list, tuple)):
                _collect(kind, item, found)


def mapped(kind: type[_Kind] | tuple[type, ...], function: Callable[[Any], Any], value: Any) -> Any:
    """Lists and tuples like these, with what a function makes of each leaf of a kind."""
    if isinstance(value, kind):
        return function(value)
    if isinstance(value, (list, tuple)):
        # A call less for each leaf: most arguments are that.
        items = [
            function(item)
            if isinstance(item, kind)
            else mapped(kind, function, item)
            if isinstance(item, (list, tuple))
            else item
            for item in value
        ]
        return items if isinstance(value, list) else tuple(items)
    return value
