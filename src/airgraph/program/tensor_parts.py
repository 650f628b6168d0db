"""The plain tensors that a tensor of a wrapping subclass is made of, as torchao's quantized weights are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from airgraph.torch_internals.fake_tensors import is_traceable_wrapper_subclass

__all__ = ["plain_parts"]


def plain_parts(tensor: torch.Tensor) -> Iterator[tuple[tuple[str, ...], torch.Tensor]]:
    """Each by the attributes that lead to it, in the order of `__tensor_flatten__`; a plain tensor by none."""
    if not is_traceable_wrapper_subclass(tensor):
        yield (), tensor
        return
    flattened: Any = tensor.__tensor_flatten__()
    for name in flattened[0]:
        for path, part in plain_parts(getattr(tensor, name)):
            yield (name, *path), part
