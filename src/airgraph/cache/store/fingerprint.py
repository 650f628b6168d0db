"""What a cached graph is only good for: the versions, options, passes and code that made it."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from airgraph.cache.format.fingerprint import Fingerprint, digest_of
from airgraph.cache.format.signed import FORMAT
from airgraph.cache.store.patches import patches_of_torch
from airgraph.options import Options
from airgraph.passes.fingerprint import (
    code_of,
    deep_identity,
    held_by,
    own_sources,
    source_of,
    sources_of_the_program_s,
)
from airgraph.passes.fingerprint import fingerprint as fingerprint_of_passes

__all__ = ["fingerprint", "form_of_owner", "versions"]


def versions() -> dict[str, str]:
    """Of all that takes part in tracing."""
    held = {"airgraph": _installed("airgraph"), "torch": torch.__version__}
    if "torch_npu" in sys.modules:
        held["torch_npu"] = str(sys.modules["torch_npu"].__version__)
    return {**held, "python": platform.python_version()}


@functools.cache
def _installed(name: str) -> str:
    return importlib.metadata.version(name)


def fingerprint(
    function: Callable[..., Any],
    options: Options,
    *,
    dynamic: bool | None,
    decompositions: Mapping[Any, Callable[..., Any]] | None,
) -> Fingerprint:
    """That of a graph which would be made now.

    Versions, the sources of the passes (see `passes.fingerprint`), the options that decide what the graph is, the
    source of the function, the class of its object, `dynamic`, the decompositions, and methods of PyTorch's that were
    replaced. What else was traced is compared file by file when a graph is read, see `staleness`.
    """
    owner = getattr(function, "__self__", None)
    inner: Any = getattr(function, "__func__", function)
    made = sorted(f"{operator}: {deep_identity(made)}" for operator, made in (decompositions or {}).items())
    sources = sources_of_the_program_s(options)
    return Fingerprint(
        {
            "format": str(FORMAT),
            **versions(),
            "passes": own_sources(),
            "the program's passes": ", ".join(sources),
            "their sources": digest_of("\0".join(sources.values())),
            "what passes do and hold": fingerprint_of_passes(options),
            **{f"option {name}": repr(value) for name, value in sorted(options.rewriting().items())},
            "dynamic": str(dynamic),
            "the function's sources": digest_of(source_of(inner)),
            "the function's instructions": digest_of(code_of(inner)),
            "what the function holds": digest_of(held_by(inner)),
            "class": "" if owner is None else f"{type(owner).__module__}.{type(owner).__qualname__}",
            "replaced methods of torch": digest_of("\0".join(patches_of_torch())),
            "decompositions": digest_of("\0".join(made)),
        }
    )


def form_of_owner(function: Callable[..., Any]) -> str:
    """12 hexadecimal digits that tell objects apart by the modules and tensors of other sizes that they hold; empty if
    there are none."""
    owner = getattr(function, "__self__", None)
    held = {"": owner} if isinstance(owner, torch.nn.Module) else getattr(owner, "__dict__", {})
    form = repr([(name, *_form(each)) for prefix, value in held.items() for name, each in _tensors(prefix, value)])
    return "" if form == "[]" else hashlib.sha256(form.encode()).hexdigest()[:12]


def _tensors(prefix: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield prefix, value
    elif isinstance(value, torch.nn.Module):
        yield from value.named_parameters(prefix, remove_duplicate=False)
        yield from value.named_buffers(prefix, remove_duplicate=False)


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tuple(tensor.shape), str(tensor.dtype), str(tensor.device)
