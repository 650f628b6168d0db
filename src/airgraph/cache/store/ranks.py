"""Which folder the graphs of this process of a distributed run lie in."""

from __future__ import annotations

import torch

__all__ = ["on_this_rank"]


def on_this_rank(global_rank: int | None, tp_rank: int | None, pp_rank: int | None) -> str:
    """The folder of a rank's graphs; "" for a process on its own."""
    if global_rank is None and torch.distributed.is_available() and torch.distributed.is_initialized():
        global_rank = torch.distributed.get_rank()
    ranks = (("rank", global_rank), ("tp", tp_rank), ("pp", pp_rank))
    return "_".join(f"{name}{rank}" for name, rank in ranks if rank is not None)
