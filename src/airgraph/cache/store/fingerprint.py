"""What a cached graph is only good for: the versions, options, passes and code that made it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from airgraph.cache.format.manifest import FORMAT
from airgraph.cache.store.patches import patches_of_torch
from airgraph.options import Options
from airgraph.passes.fingerprint import fingerprint as fingerprint_of_passes
from airgraph.passes.fingerprint import identity

__all__ = ["fingerprint", "form_of_owner", "versions"]


def versions() -> dict[str, str]:
    """Of all that takes part in tracing."""
    held = {"airgraph": importlib.metadata.version("airgraph"), "torch": torch.__version__}
    if "torch_npu" in sys.modules:
        held["torch_npu"] = importlib.metadata.version("torch_npu")
    return {**held, "python": platform.python_version()}


def fingerprint(
    function: Callable[..., Any],
    options: Options,
    *,
    dynamic: bool | None,
    decompositions: Mapping[Any, Callable[..., Any]] | None,
) -> str:
    """32 hexadecimal digits; a graph made under another fingerprint is never used.

    Changes with the versions, the sources of the passes (see `passes.fingerprint`), the options that decide what the
    graph is, the source of the function, the name of its class, `dynamic`, the decompositions, and methods of PyTorch's
    that were replaced. What else was traced is compared file by file when a graph is read, see `staleness`.
    """
    owner = getattr(function, "__self__", None)
    parts = [
        f"format {FORMAT}",
        repr(sorted(versions().items())),
        fingerprint_of_passes(options),
        repr(sorted(options.rewriting().items())),
        f"dynamic={dynamic}",
        identity(getattr(function, "__func__", function)),
        "" if owner is None else f"{type(owner).__module__}.{type(owner).__qualname__}",
        *patches_of_torch(),
        *sorted(f"{operator}: {identity(made)}" for operator, made in (decompositions or {}).items()),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def form_of_owner(function: Callable[..., Any]) -> str:
    """12 hexadecimal digits that tell modules of one class and different sizes apart; empty if there is none."""
    owner = getattr(function, "__self__", None)
    if not isinstance(owner, torch.nn.Module):
        return ""
    held = (*owner.named_parameters(remove_duplicate=False), *owner.named_buffers(remove_duplicate=False))
    form = repr([(name, tuple(tensor.shape), str(tensor.dtype), str(tensor.device)) for name, tensor in held])
    return hashlib.sha256(form.encode()).hexdigest()[:12]
