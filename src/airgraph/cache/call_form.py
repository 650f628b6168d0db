"""How a call's arguments become the values of a function's parameters, and back."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["CallForm"]


class CallForm:
    """Of one function. function: what is traced, and called with `values`: those of all its parameters in order.

    plain_arity: how many positional arguments are the values as they are, -1 if no number of them is.
    """

    def __init__(self, function: Any) -> None:
        # Where the object of a method is among *args, as in a decorator's wrapper, it is given before the others.
        inner = getattr(function, "__func__", function)
        takes_owner = inner is not function and inner.__code__.co_argcount == 0
        self.before: tuple[Any, ...] = (getattr(function, "__self__", None),) if takes_owner else ()
        self.function: Callable[..., Any] = inner if takes_owner else function
        self._signature = inspect.signature(self.function, follow_wrapped=False)
        self._parameters = tuple(self._signature.parameters)
        kinds = {parameter.kind for parameter in self._signature.parameters.values()}
        # Whether arguments in their order are the values of the parameters.
        self.is_plain = kinds <= {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
        self.plain_arity = len(self._parameters) if self.is_plain else -1
        # Of forms of calls that were seen: the parameters after the positional ones, with their defaults.
        self._seen: dict[tuple[Any, ...], tuple[tuple[str, Any], ...]] = {}

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The values of all parameters in order. Raises TypeError as calling the function would."""
        args = (*self.before, *args)
        form = (len(args), *kwargs)
        rest = self._seen.get(form)
        if rest is None:
            arguments = self._signature.bind(*args, **kwargs)
            arguments.apply_defaults()
            if self.is_plain:
                self._seen[form] = tuple(
                    (name, None if name in kwargs else self._signature.parameters[name].default)
                    for name in self._parameters[len(args) :]
                )
            return tuple(arguments.arguments.values())
        return (*args, *[kwargs.get(name, default) for name, default in rest])

    def bound(self, values: tuple[Any, ...]) -> inspect.BoundArguments:
        return inspect.BoundArguments(self._signature, dict(zip(self._parameters, values, strict=True)))

    def call(self, function: Callable[..., Any], values: tuple[Any, ...]) -> Any:
        """Call it, or what was compiled from it."""
        arguments = self.bound(values)
        return function(*arguments.args, **arguments.kwargs)
