"""Makes the engine's watches without the paths that they come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airgraph.runtime.engine.loading import engine

_ADD = {
    "items": "add_item", "lengths": "add_length", "absent": "add_absent", "keys": "add_keys",
    "attributes": "add_attribute", "types": "add_type", "class_items": "add_class_item",
    "class_absent": "add_class_absent", "whole_classes": "add_class", "cells": "add_cell",
}  # fmt: skip


def make_watch(*, functions: Iterable[Any] = (), **watched: Any) -> Any:
    """A watch of the named kinds; `csrc/cache/watch.h` says what each holds."""
    watch = engine().Watch()
    for kind, entries in watched.items():
        for each in entries:
            getattr(watch, _ADD[kind])(*each)
    for function in functions:
        watch.add_function(function)
    return watch


def watch_entries(namespace: Mapping[str, Any]) -> Any:
    """A watch of all that a dict holds now."""
    return make_watch(items=[(namespace, key, value) for key, value in namespace.items()])
