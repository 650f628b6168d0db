"""Makes the engine's watches without the paths that they come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airgraph.runtime.cpu.engine import engine

_KINDS = (
    "items", "lengths", "absent", "keys", "attributes", "types", "class_items", "class_absent", "functions",
    "whole_classes", "cells",
)  # fmt: skip


def make_watch(**watched: Any) -> Any:
    """A watch of the named kinds; `csrc/watch.h` says what each holds."""
    assert set(watched) <= set(_KINDS)
    return engine().Watch(*(tuple(watched.get(kind, ())) for kind in _KINDS))


def watch_entries(namespace: Mapping[str, Any]) -> Any:
    """A watch of all that a dict holds now."""
    return make_watch(items=[(namespace, key, value) for key, value in namespace.items()])
