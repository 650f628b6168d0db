"""What a traced function changes in Python objects: nothing may remain, for a cached graph changes nothing but tensors.

Method: Dynamo names the objects that its code will change after the graph. Their state is noted before that code runs
and compared after it, so that what is set and set back, such as a flag during a call, is no obstacle.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from airgraph.cache.graph_format import Unwritable
from airgraph.cache.source_path import SourcePath, parse

__all__ = ["SideEffects"]

_MARK = "certain side effects happened"


class SideEffects:
    """`named` around tracing, `note` before the traced code changes anything, `check` after it."""

    def __init__(self, read: Callable[[SourcePath], Any]) -> None:
        self._read = read
        self._names: list[str] = []
        self._noted: list[tuple[str, Any, Any]] = []

    @contextmanager
    def named(self) -> Iterator[None]:
        """Hears from Dynamo which objects change."""
        if not hasattr(torch._dynamo.config, "side_effect_replay_policy"):
            raise Unwritable(f"torch {torch.__version__} cannot tell whether a function has side effects")
        with warnings.catch_warnings(), torch._dynamo.config.patch(side_effect_replay_policy="warn"):
            warnings.filterwarnings("always", message=f".*{_MARK}")
            show = warnings.showwarning

            def listen(message: Any, *args: Any, **kwargs: Any) -> None:
                if _MARK in str(message):
                    self._names += ast.literal_eval("[" + str(message).partition("[")[2])
                else:
                    show(message, *args, **kwargs)

            warnings.showwarning = listen
            yield

    def note(self) -> None:
        """Raises Unwritable where the state of an object cannot be noted; nothing was changed then."""
        for name in dict.fromkeys(self._names):
            try:
                value = self._read(parse(name))
                self._noted.append((name, value, _state(value)))
            except (Unwritable, LookupError, AttributeError, TypeError) as error:
                raise Unwritable(f"the function changes {name}") from error

    def check(self) -> None:
        """Raises Unwritable if an object is not as it was; it is made so again."""
        changed = [name for name, value, state in self._noted if not _is_same(_state(value), state)]
        for _, value, state in self._noted:
            _restore(value, state)
        if changed:
            raise Unwritable(f"the function changes {', '.join(changed)}")


def _state(value: Any) -> Any:
    """A shallow copy of what an object holds."""
    if type(value) in (list, dict, set):
        return value.copy()
    if hasattr(value, "__dict__") and not isinstance(value, type):
        return dict(vars(value))
    raise Unwritable(f"an object of type {type(value).__name__}")


def _restore(value: Any, state: Any) -> None:
    if isinstance(value, list):
        value[:] = state
        return
    held = value if isinstance(value, (dict, set)) else vars(value)
    if not _is_same(held, state):
        held.clear()
        held.update(state)


def _is_same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return list(a) == list(b) and all(_is_same_value(a[key], b[key]) for key in a)
    return len(a) == len(b) and all(map(_is_same_value, a, b))


def _is_same_value(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, (bool, int, float, str)) and type(a) is type(b) and a == b)
