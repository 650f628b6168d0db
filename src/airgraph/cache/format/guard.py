"""A guard: a fact about a value that a traced graph took for granted, and what it takes to compare and watch it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch

from airgraph.cache.format.graph import value_to
from airgraph.cache.format.source_path import SourcePath

__all__ = ["Guard", "GuardCompiler", "GuardWatch", "Read"]

# Reads a path; raises LookupError, AttributeError or TypeError where nothing is.
Read = Callable[[SourcePath], Any]


class GuardCompiler(Protocol):
    """Collects instructions for values that come with a call; `checking/call_reader` makes the engine's of them."""

    def at(self, path: SourcePath) -> int:
        """The slot of the value there."""
        ...

    def owner_at(self, path: SourcePath) -> int:
        """The slot of what the last step is taken from."""
        ...

    def add(self, name: str, *operands: Any) -> None:
        """An instruction of `csrc/cache/reader_instruction.h`."""
        ...

    def require_state(self, path: SourcePath, wrapper: torch.Tensor, read: Read) -> None:
        """That the wrapper of tensors there has the form and the attributes that this one, which lies there, has."""
        ...

    def require_class(self, path: SourcePath, read: Read) -> None:
        """That the value there is of the class that it has now."""
        ...

    def comes_with_the_call(self, path: SourcePath) -> bool: ...

    def argument_of(self, path: SourcePath) -> object:
        """By which argument of the call it comes: of *args and **kwargs each is one."""
        ...


class GuardWatch(Protocol):
    """Collects what is to stay as it is, so that values that do not come with a call need not be looked at anew."""

    def add_keys(self, value: Any) -> None:
        """The keys of a dict, or the elements of a set, in order."""
        ...

    def add_length(self, value: Any) -> None: ...

    def add_present(self, value: Any, name: str) -> None:
        """That it has an attribute."""
        ...

    def add_absent(self, value: Any, name: str, *, in_class: bool) -> None:
        """That it has not, of its own; in_class: its class neither."""
        ...

    def add_type(self, value: Any) -> None:
        """Its class, and all that this does."""
        ...

    def add_attributes(self, value: Any) -> None:
        """All that an object holds of its own, and what that holds in turn."""
        ...

    def add_code(self, value: Any) -> None:
        """What a function or a class does."""
        ...


@dataclass(frozen=True, slots=True)
class Guard(ABC):
    """One fact about the value at a path. kind: its name in files."""

    path: SourcePath
    expected: Any

    kind: ClassVar[str]
    # What `expected` must be; None where any plain value may be.
    holds: ClassVar[type | None] = None
    # Whether two guards of this kind on one path contradict each other if they differ.
    is_unique: ClassVar[bool] = False

    @abstractmethod
    def found(self, value: Any, read: Read) -> Any:
        """What is to equal `expected`. Raises LookupError, AttributeError or TypeError where there is no such thing."""

    def broken(self, read: Read) -> str | None:
        """Why it does not hold, in words, or None."""
        try:
            found = self.found(read(self.path), read)
        except (LookupError, AttributeError, TypeError):
            return f"{self.path.text} is missing"
        except (ValueError, RuntimeError, ArithmeticError) as error:
            # Of properties and methods of the user's own. Not all errors: a signal handler may raise its own here.
            return f"{self.path.text} cannot be read: {type(error).__name__}: {error}"
        return None if _is_equal(found, self.expected) else self.in_words(found)

    def in_words(self, found: Any) -> str:
        return f"{self.kind} of {self.path.text}: expected {self.expected!r}, got {found!r}"

    def compile(self, made: GuardCompiler, read: Read) -> None:
        """Have it compared at each call, of a value that comes with the call."""
        made.add("holds", made.at(self.path), lambda value: self.broken(lambda path: value) is None)

    def watch(self, watch: GuardWatch, value: Any) -> None:  # noqa: B027 (for most kinds there is nothing)
        """Have noticed what may break it beside another object in the value's place."""

    def watch_class(self, watch: GuardWatch, read: Read) -> None:  # noqa: B027
        """The same where the value comes with the call, and is compared itself."""

    def to_data(self) -> list[Any]:
        return [self.kind, self.path.text, value_to(self.expected)]

    @property
    def others(self) -> tuple[SourcePath, ...]:
        """The paths that it compares with."""
        return ()


def _is_equal(a: Any, b: Any) -> bool:
    """0.0 and -0.0 differ, and so do (1,) and (True,)."""
    by_text = isinstance(a, (float, complex, tuple, list))
    return type(a) is type(b) and (repr(a) == repr(b) if by_text else bool(a == b))
