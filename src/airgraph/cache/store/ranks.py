"""Which folder the graphs of this process of a distributed run lie in."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch

from airgraph import arguments

__all__ = ["ALONE", "Ranks"]


@dataclass(frozen=True, slots=True)
class Ranks:
    """The place of a process in a distributed run, as far as it is given; the rest is asked of torch.distributed.

    Raises OptionError for what is no number of a rank: it becomes part of a path.
    """

    global_rank: int | None = None
    tp_rank: int | None = None
    pp_rank: int | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            rank = arguments.integer(each.name, getattr(self, each.name), least=0, or_none=True)
            object.__setattr__(self, each.name, rank)

    def as_folder(self) -> str:
        """`rank0_tp0_pp0`, of those that are known; "" for a process on its own."""
        global_rank = self.global_rank
        if global_rank is None and _is_distributed():
            global_rank = torch.distributed.get_rank()
        ranks = (("rank", global_rank), ("tp", self.tp_rank), ("pp", self.pp_rank))
        return "_".join(f"{name}{rank}" for name, rank in ranks if rank is not None)

    def as_folder_of_torchair(self) -> str:
        """`world2global_rank0_tp_rank0_pp_rank0`, of those that are known; "" for a process on its own."""
        parts = []
        if _is_distributed() and torch.distributed.get_world_size() > 1:
            rank = torch.distributed.get_rank() if self.global_rank is None else self.global_rank
            parts.append(f"world{torch.distributed.get_world_size()}global_rank{rank}")
        parts += [f"tp_rank{self.tp_rank}"] if self.tp_rank is not None else []
        parts += [f"pp_rank{self.pp_rank}"] if self.pp_rank is not None else []
        return "_".join(parts)


# Nothing is given.
ALONE = Ranks()


def _is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
