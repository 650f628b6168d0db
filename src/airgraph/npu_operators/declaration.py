"""What one operator is: its schema, what computes it, and which arguments mean something here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from airgraph.errors import UnsupportedArgument

__all__ = ["NAMESPACE", "Operator", "require"]

NAMESPACE = "npu"


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of torch_npu's, in PyTorch's own.

    schema: torch_npu's, without the namespace. kernel: takes the schema's arguments by name, but those in `refused` and
    `hints`. refused: arguments that may only have their default; any other value raises UnsupportedArgument. hints:
    arguments that say how a card computes, not what, and change no result. fake: forms of the results. With it the
    operator stays one node of a graph; without, it is decomposed into what the kernel calls wherever it is traced.
    """

    schema: str
    kernel: Callable[..., Any]
    refused: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    fake: Callable[..., Any] | None = None

    @property
    def qualified_name(self) -> str:
        """`npu_rms_norm`, or `npu_format_cast.Tensor` where there are several overloads."""
        return self.schema.partition("(")[0]

    @property
    def name(self) -> str:
        """What scripts call: `npu_rms_norm`."""
        return self.qualified_name.partition(".")[0]

    @property
    def overload(self) -> torch._ops.OpOverload:
        """It, where it is registered; AttributeError otherwise."""
        packet = getattr(getattr(torch.ops, NAMESPACE), self.name)
        found: torch._ops.OpOverload = getattr(packet, self.qualified_name.partition(".")[2] or "default")
        return found

    def checked(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` by the schema's arguments, of which it gets those that mean something.

        To be called when PyTorch knows the schema. What it gives raises UnsupportedArgument where a refused argument is
        not its default.
        """
        arguments = self.overload._schema.arguments
        names = [each.name for each in arguments]
        defaults = {each.name: each.default_value for each in arguments if each.name in self.refused}

        def call(*args: Any, **kwargs: Any) -> Any:
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            for name, default in defaults.items():
                value = given.pop(name, default)
                if not _same(value, default):
                    raise UnsupportedArgument(self.name, name, f"{default!r}, all that is done here", value)
            for name in self.hints:
                given.pop(name, None)
            return function(**given)

        return call


def _same(value: Any, default: Any) -> bool:
    if value is None or default is None or isinstance(value, torch.Tensor):
        return value is default
    return bool(value == default)


def require(condition: Any, operator: str, argument: str, expected: str, got: Any) -> None:
    """Raises UnsupportedArgument unless the condition holds."""
    if not condition:
        raise UnsupportedArgument(operator, argument, expected, got)
