"""The two front doors by TorchAir's names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from airgraph import torchair

__all__ = ["through"]


def through(
    door: str, method: Callable[..., Any], folder: Path, config: torchair.CompilerConfig | None = None
) -> Callable[..., Any]:
    """A method captured through `door`, without a break in its graph."""
    if door == "compiled":
        backend = torchair.get_npu_backend(compiler_config=config)
        return torch.compile(method, backend=backend, dynamic=True, fullgraph=True)
    return torchair.inference.cache_compile(method, config=config, cache_dir=folder)
