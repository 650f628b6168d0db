"""Locks that a process may be forked beside.

They are the interpreter's own, taken by `with`, so that no exception of a signal handler can fall between the taking
and what gives them back; and a thread may take one again, since a handler or a finalizer may run within it.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

__all__ = ["renew_after_fork"]


def renew_after_fork(owner: Any, name: str) -> None:
    """In the child of a fork an object or a module gets a new lock, an RLock, under this name.

    The thread that had the old one does not exist there.
    """
    _owners.append((weakref.ref(owner), name))


_owners: list[tuple[weakref.ref[Any], str]] = []


def _renew_all() -> None:
    for reference, name in _owners:
        owner = reference()
        if owner is not None:
            setattr(owner, name, threading.RLock())


os.register_at_fork(after_in_child=_renew_all)
