# SPDX-License-Identifier: Apache-2.0
"""Recipes for the arguments of an operator case: the same values on every device, by element type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class T:
    """A tensor of the case's element type.

    layout: "dense"; "strided", a transposed slice of a larger tensor with an offset; or "expanded", one element
    repeated along the first dimension with stride 0. low, high: the range of its values.
    dtype: overrides the case's type.
    """

    shape: tuple[int, ...] = (3, 4)
    low: float = -3.0
    high: float = 3.0
    layout: str = "dense"
    dtype: torch.dtype | None = None

    def make(self, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        dtype = self.dtype or dtype
        shape = self.shape
        if self.layout == "strided":
            shape = (*reversed([size + 1 for size in shape]),)
        elif self.layout == "expanded":
            shape = (1, *shape[1:])
        values = torch.rand(shape, generator=generator, dtype=torch.float64) * (self.high - self.low) + self.low
        if dtype is torch.bool:
            tensor = values > (self.low + self.high) / 2
        elif dtype.is_floating_point:
            tensor = values.to(dtype)
        else:
            tensor = (values if self.low < 0 and dtype is not torch.uint8 else values.abs()).floor().to(dtype)
        if self.layout == "strided":
            for dim in range(tensor.dim()):
                tensor = tensor.narrow(dim, 1, tensor.size(dim) - 1)
            tensor = tensor.permute(*reversed(range(tensor.dim())))
        elif self.layout == "expanded":
            tensor = tensor.expand(self.shape)
        return tensor


def index(shape: tuple[int, ...], size: int) -> T:
    """Indices into a dimension of `size`."""
    return T(shape, 0, size, dtype=torch.int64)


def mask(shape: tuple[int, ...], layout: str = "dense") -> T:
    return T(shape, dtype=torch.bool, layout=layout)


@dataclass(frozen=True)
class Values:
    """A tensor with exactly these values."""

    values: Any
    dtype: torch.dtype = torch.int64

    def make(self, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        return torch.tensor(self.values, dtype=self.dtype)


def make(recipe: Any, dtype: torch.dtype, generator: torch.Generator) -> Any:
    """The argument that a recipe describes; anything that is no recipe stands for itself."""
    if isinstance(recipe, (T, Values)):
        return recipe.make(dtype, generator)
    if isinstance(recipe, (list, tuple)):
        return type(recipe)(make(part, dtype, generator) for part in recipe)
    return recipe


def depends_on_dtype(recipe: Any) -> bool:
    """Whether a recipe, or any in a list of them, leaves the element type open."""
    if isinstance(recipe, (list, tuple)):
        return any(depends_on_dtype(part) for part in recipe)
    return isinstance(recipe, T) and recipe.dtype is None


def to_device(argument: Any, device: str) -> Any:
    """A copy on `device` with the same sizes, strides and offset."""
    if isinstance(argument, torch.Tensor):
        span = argument.untyped_storage().nbytes() // argument.element_size()
        storage = torch.empty(0, dtype=argument.dtype).set_(argument.untyped_storage(), 0, (span,))
        copied = storage.clone() if device == "cpu" else storage.to(device)
        return copied.as_strided(argument.size(), argument.stride(), argument.storage_offset())
    if isinstance(argument, (list, tuple)):
        return type(argument)(to_device(part, device) for part in argument)
    return argument


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of nested lists and tuples, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors_in(part)]
    return []
