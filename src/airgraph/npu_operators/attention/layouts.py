"""How queries, keys and values lie in their tensors, and that as [batch, heads, length, size]."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from airgraph.npu_operators.declaration import require

__all__ = ["from_heads", "to_heads"]


def to_heads(operator: str, argument: str, x: Tensor, layout: str, heads: int) -> Tensor:
    """A tensor of BSH, SBH, BSND or BNSD as a view of shape [batch, heads, length, size].

    Raises UnsupportedArgument, with the argument's name, where its shape is not of that layout.
    """
    dims = len(layout)
    require(x.dim() == dims, operator, argument, f"of {dims} dimensions with input_layout={layout!r}", x)
    if dims == 4:
        found = x.transpose(1, 2) if layout == "BSND" else x
        require(found.shape[1] == heads, operator, argument, f"of {heads} heads with input_layout={layout!r}", x)
        return found
    require(x.shape[2] % heads == 0, operator, argument, f"of a last dimension that {heads} heads divide", x)
    split = x.unflatten(2, (heads, x.shape[2] // heads))
    return split.permute(1, 2, 0, 3) if layout == "SBH" else split.transpose(1, 2)


def from_heads(x: Tensor, layout: str) -> Tensor:
    """The inverse, contiguous."""
    if layout == "BNSD":
        return x.contiguous()
    if layout == "BSND":
        return x.transpose(1, 2).contiguous()
    order: Any = (2, 0, 1, 3) if layout == "SBH" else (0, 2, 1, 3)
    return x.permute(order).flatten(2).contiguous()
