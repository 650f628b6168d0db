"""The two front doors, for promises that both keep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import airgraph

__all__ = ["both_doors", "through"]

both_doors = pytest.mark.parametrize("door", ["compiled", "cached"])


def through(
    door: str,
    function: Callable[..., Any],
    folder: Path,
    *,
    dynamic: bool | None = False,
    strict: bool = False,
    fullgraph: bool = False,
    **options: Any,
) -> Callable[..., Any]:
    """A function captured through `door`.

    strict: of the cached one, that nothing is compiled in its place. fullgraph: of the compiled one, that it is one
    graph, as a cached one always is.
    """
    if door == "compiled":
        return torch.compile(function, backend="airgraph", dynamic=dynamic, fullgraph=fullgraph, options=options)
    return airgraph.inference.cache_compile(function, cache_dir=folder, dynamic=dynamic, strict=strict, options=options)
