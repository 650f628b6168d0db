"""Groups of processes by their names, as collectives in a graph have them, and when one ends."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["before_shutdown", "default_store", "group_named", "is_ending"]

# By name, those that have been told to end; torch finds them until they have ended.
_ending: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def group_named(name: str) -> Any:
    """A `torch.distributed.ProcessGroup` of this process, or None."""
    from torch.distributed.distributed_c10d import _resolve_process_group

    try:
        return _resolve_process_group(name)  # type: ignore[arg-type]
    except RuntimeError:
        return None


def default_store() -> Any:
    """The `torch.distributed.Store` that this process's groups were made with, or None."""
    from torch.distributed.distributed_c10d import _get_default_store

    try:
        return _get_default_store()
    except ValueError:
        return None


def is_ending(group: Any) -> bool:
    """Whether a group was told to shut down or abort since somebody asked `before_shutdown`."""
    return _ending.get(str(group.group_name)) is group


@functools.cache
def before_shutdown(tell: Callable[[str, bool], None]) -> None:
    """From now on, tell the name of each group that is about to shut down, as by `destroy_process_group`, or to abort.

    And whether there is time: an abort is to break what may be stuck, and waits for nobody. torch has no hook for that:
    two methods of its class are replaced, once for a `tell`.
    """
    from torch.distributed import ProcessGroup

    for method, waits in (("shutdown", True), ("abort", False)):
        setattr(ProcessGroup, method, _told_before(getattr(ProcessGroup, method), tell, waits=waits))


def _told_before(method: Callable[..., Any], tell: Callable[[str, bool], None], *, waits: bool) -> Callable[..., Any]:
    @functools.wraps(method)
    def ending(group: Any, *args: Any, **kwargs: Any) -> Any:
        name = str(group.group_name)
        _ending[name] = group
        try:
            tell(name, waits)
        except BaseException:
            # It does not end.
            _ending.pop(name, None)
            raise
        return method(group, *args, **kwargs)

    return ending
