"""Notices whether objects that were read once are still where they were: the same objects in the same containers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airgraph.cache.conditions import Condition
from airgraph.cache.source_path import Attribute, Item, Size, SourcePath
from airgraph.runtime.cpu.engine import engine

__all__ = ["Watch"]


class Watch:
    """Remembers the steps of paths from one object on; `changed()` compares identities, nothing is computed.

    Not seen: the replacement of an object's whole `__dict__`, what a property or `__getitem__` of one's own computes
    from other state, and values inside tensors.
    """

    def __init__(self) -> None:
        self._items: dict[tuple[int, Any], tuple[Any, Any, Any]] = {}
        self._attributes: dict[tuple[int, str], tuple[Any, str, Any]] = {}
        self._keys: dict[int, tuple[Any, tuple[Any, ...]]] = {}
        self._lengths: dict[int, tuple[Any, int]] = {}
        self._absent: dict[tuple[int, str], tuple[dict[str, Any], str]] = {}

    def add(self, path: SourcePath, root: Any) -> Any:
        """Watches all steps of a path and returns the value there. Raises as reading it does."""
        owner = root
        for step in path.steps:
            value = step.read(owner)
            if isinstance(step, Attribute):
                held = getattr(owner, "__dict__", None)
                if isinstance(held, dict) and held.get(step.name, self) is value:
                    self._items[id(held), step.name] = (held, step.name, value)
                else:
                    self._attributes[id(owner), step.name] = (owner, step.name, value)
            elif isinstance(step, Item) and not isinstance(owner, tuple):
                self._items[id(owner), step.key] = (owner, step.key, value)
            elif isinstance(step, Size):
                # Sizes of a tensor are compared when its graph is captured or replayed.
                return value
            owner = value
        return owner

    def add_condition(self, condition: Condition, value: Any) -> None:
        """Watches what a condition on a value says beyond the value's identity."""
        if condition.kind == "keys" and isinstance(value, dict):
            self._keys[id(value)] = (value, tuple(value))
        elif condition.kind in ("keys", "length"):
            self._lengths[id(value)] = (value, len(value))
        elif condition.kind in ("lacks", "inherits"):
            held = getattr(value, "__dict__", None)
            if isinstance(held, dict) and condition.expected not in held:
                self._absent[id(held), condition.expected] = (held, condition.expected)

    def compile(self) -> Callable[[], bool]:
        """The function that says whether anything changed."""
        watched = self._items, self._lengths, self._absent, self._keys, self._attributes
        return engine().Watch(*(tuple(each.values()) for each in watched)).changed
