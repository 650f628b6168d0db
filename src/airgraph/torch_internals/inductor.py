"""Inductor's pattern matcher, which works on any FX graph."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["pattern_matcher", "with_fake_mode", "without_decompositions"]


def pattern_matcher() -> Any:
    """The module."""
    from torch._inductor import pattern_matcher as module

    return module


def with_fake_mode(mode: Any) -> AbstractContextManager[Any]:
    """Replacements are traced with this mode within."""
    from torch._inductor.virtualized import V

    return V.set_fake_mode(mode)


def without_decompositions() -> Mapping[str, Any]:
    """What has `register_replacement` trace operators as they are. Before torch 2.12 that is asked of its trace_fn."""
    parameters = inspect.signature(pattern_matcher().register_replacement).parameters
    return {"get_decomp_fn": dict} if "get_decomp_fn" in parameters else {}
