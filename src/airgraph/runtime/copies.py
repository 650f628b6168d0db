"""What an operator copies: bytes of values that it moves without computing anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["copied_nbytes"]

# Their result is a copy, or put together from copies.
_COPIES = {"cat", "clone", "constant_pad_nd", "contiguous", "copy", "repeat", "stack", "_to_copy"}
# They copy their first argument and then write a part of the copy.
_COPIES_TO_WRITE = {
    *("index_add", "index_copy", "index_fill", "index_put", "index_reduce"),
    *("scatter", "scatter_add", "scatter_reduce", "masked_scatter"),
    *("as_strided_scatter", "diagonal_scatter", "select_scatter", "slice_scatter"),
}


def copied_nbytes(op: torch._ops.OpOverload, args: Sequence[Any], result: Any) -> int:
    """Bytes that a call copies, operators that compute excepted."""
    namespace, _, name = op._schema.name.partition("::")
    if namespace != "aten":
        return 0
    if name == "copy_":
        return int(args[0].nbytes)
    copies = name in _COPIES or name in _COPIES_TO_WRITE
    return int(result.nbytes) if copies and isinstance(result, torch.Tensor) else 0
