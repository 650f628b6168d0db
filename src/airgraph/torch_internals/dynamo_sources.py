"""Dynamo's sources, which say where a value comes from, and the guards that are on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch.fx import Node

__all__ = [
    "attribute_asked_for",
    "details_of",
    "name_of_source",
    "path_of_guard",
    "path_of_node",
    "set_source_within",
    "source_of_variable",
]


def name_of_source(source: Any) -> str:
    """The text of a source: the path of a value."""
    # A property since torch 2.12, a method before; drop the call when 2.11 is no longer supported.
    name = source.name
    return str(name() if callable(name) else name)


def path_of_node(node: Node) -> str | None:
    """Of what a placeholder stands for."""
    source = getattr(node, "_dynamo_source", None)
    return None if source is None else name_of_source(source)


def source_of_variable(variable: Any) -> Any:
    """Where what a variable stands for comes from; None for what has been made since."""
    return getattr(variable, "source", None)


def set_source_within(node: Node, whole: Node, path: Sequence[str]) -> None:
    """Let a placeholder stand for what attributes lead to from what another one stands for."""
    from torch._dynamo.source import AttrSource

    source: Any = getattr(whole, "_dynamo_source", None)
    for name in path if source is not None else ():
        source = AttrSource(source, name)
    node._dynamo_source = source


def path_of_guard(guard: Any) -> str:
    """What a guard (a `GuardFilterEntry`) is on."""
    return name_of_source(guard.orig_guard)


def details_of(guard: Any) -> Mapping[str, Any]:
    """What Dynamo hands to the function that makes a guard of this kind."""
    return getattr(guard.orig_guard.create_fn, "keywords", {})


def attribute_asked_for(guard: Any) -> tuple[str, str]:
    """Of a guard on an attribute that may be there or not: the object's path, and the attribute's name."""
    named = details_of(guard).get("attr")
    if named is not None:
        return path_of_guard(guard), named
    # Before torch 2.12 such a guard is about the attribute, which may not be there.
    asked = guard.orig_guard.originating_source
    return name_of_source(asked.base), asked.member
