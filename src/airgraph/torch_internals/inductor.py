"""Inductor's pattern matcher, which works on any FX graph."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

__all__ = ["pattern_matcher", "with_fake_mode"]


def pattern_matcher() -> Any:
    """The module."""
    from torch._inductor import pattern_matcher as module

    return module


def with_fake_mode(mode: Any) -> AbstractContextManager[Any]:
    """Replacements are traced with this mode within."""
    from torch._inductor.virtualized import V

    return V.set_fake_mode(mode)
