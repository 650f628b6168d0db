"""Groups of processes by their names, as collectives in a graph have them, and when one ends."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["before_shutdown", "group_named"]


def group_named(name: str) -> Any:
    """A `torch.distributed.ProcessGroup` of this process, or None."""
    from torch.distributed.distributed_c10d import _resolve_process_group

    try:
        return _resolve_process_group(name)  # type: ignore[arg-type]
    except RuntimeError:
        return None


@functools.cache
def before_shutdown(tell: Callable[[str], None]) -> None:
    """From now on, tell the name of each group that is about to shut down or abort, as by `destroy_process_group`.

    torch has no hook for that: two methods of its class are replaced, once for a `tell`.
    """
    from torch.distributed import ProcessGroup

    for method in ("shutdown", "abort"):
        setattr(ProcessGroup, method, _told_before(getattr(ProcessGroup, method), tell))


def _told_before(method: Callable[..., Any], tell: Callable[[str], None]) -> Callable[..., Any]:
    @functools.wraps(method)
    def ending(group: Any, *args: Any, **kwargs: Any) -> Any:
        tell(str(group.group_name))
        return method(group, *args, **kwargs)

    return ending
