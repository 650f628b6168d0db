"""Which products and attentions the kernels for few rows serve."""

from __future__ import annotations

import torch
from torch.fx import Node

__all__ = ["FLOATS", "MOST_ROWS", "MOST_SHARING", "has_few_rows", "lies_in_columns"]

# As in csrc/kernels/own/row_step.h.
MOST_ROWS = 8
# As in csrc/kernels/own/decode_attention.cpp: rows of queries that share a head of keys.
MOST_SHARING = 64
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def has_few_rows(node: Node, dim: int = 0) -> bool:
    """Whether a tensor of floats on the CPU has at most MOST_ROWS rows, whatever the call."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.device.type != "cpu" or value.dtype not in FLOATS:
        return False
    rows = value.shape[dim]
    return isinstance(rows, int) and 1 <= rows <= MOST_ROWS


def lies_in_columns(node: Node) -> bool:
    """Whether the elements of a column of a matrix follow one another, as of a transposed weight."""
    value = node.meta["val"]
    return value.dim() == 2 and isinstance(value.stride(0), int) and value.stride(0) == 1
