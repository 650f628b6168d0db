"""Groups of processes by their names, as collectives in a graph have them."""

from __future__ import annotations

from typing import Any

__all__ = ["group_named"]


def group_named(name: str) -> Any:
    """A `torch.distributed.ProcessGroup` of this process, or None."""
    from torch.distributed.distributed_c10d import _resolve_process_group

    try:
        return _resolve_process_group(name)  # type: ignore[arg-type]
    except RuntimeError:
        return None
