"""Arguments twice, so that eager and a graph each write their own: alike in values, strides, offsets and overlaps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["check_against_eager", "twins"]


def twins(args: Sequence[Any]) -> list[Any]:
    """Copies of whole storages, seen as the arguments see them; what shares a storage does so again."""
    storages: dict[int, torch.Tensor] = {}
    copies = []
    for arg in args:
        if not isinstance(arg, torch.Tensor):
            copies.append(arg)
            continue
        storage = arg.untyped_storage()
        if storage._cdata not in storages:
            whole = arg.detach().as_strided((storage.nbytes() // arg.itemsize,), (1,), 0)
            storages[storage._cdata] = whole.clone()
        flat = storages[storage._cdata]
        # Views of one tensor, as the arguments are: AOTAutograd asks for it.
        flat = flat if flat.dtype == arg.dtype else flat.view(arg.dtype)
        copies.append(flat.as_strided(arg.shape, arg.stride(), arg.storage_offset()))
    return copies


def check_against_eager(ours: Callable[..., Any], eager: Callable[..., Any], *args: Any) -> None:
    """Call both on twins of the arguments; results and what was written are the same afterwards."""
    mine, others = twins(args), twins(args)
    expected, got = eager(*others), ours(*mine)
    torch.testing.assert_close(_plain(got), _plain(expected), equal_nan=True, check_stride=False)
    torch.testing.assert_close(_whole(mine), _whole(others), equal_nan=True)


def _plain(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _whole(args: Sequence[Any]) -> list[torch.Tensor]:
    """The storages, as far as they have whole elements, so that a write beside an argument shows too."""
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    return [x.as_strided((x.untyped_storage().nbytes() // x.itemsize,), (1,), 0) for x in tensors]
