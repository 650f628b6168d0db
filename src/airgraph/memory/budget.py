"""Whether a capture fits a budget, asked before it is made."""

from __future__ import annotations

from airgraph.errors import UnsupportedGraph
from airgraph.memory.footprint import Footprint
from airgraph.memory.pool import MemoryPool

__all__ = ["check_budget"]


def check_budget(pool: MemoryPool, footprint: Footprint, budget_nbytes: int | None) -> None:
    """Raises UnsupportedGraph, with predicted and free bytes, if the pool would grow past its budget."""
    if budget_nbytes is None:
        return
    held = pool.nbytes
    predicted = pool.nbytes_with(footprint)
    if predicted > max(budget_nbytes, held):
        raise UnsupportedGraph(
            f"memory_budget={budget_nbytes}: the pool would grow from {held} to {predicted} bytes, by "
            f"{predicted - held}, of which {max(0, budget_nbytes - held)} are free; raise the budget or capture "
            "fewer or smaller shapes"
        )
