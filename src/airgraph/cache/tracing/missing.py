"""What a trace found missing, or asked for, in objects that Dynamo makes no guard of."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType
from typing import Any

import torch

from airgraph.cache.format.guard import Guard, Read
from airgraph.cache.format.guards import CONSTANTS, Excludes, Has, Keys, Lacks, OfClass, has_attribute
from airgraph.cache.format.source_path import SourcePath, is_made_by_dynamo, parse, resolve
from airgraph.errors import UnsupportedPath, Unwritable
from airgraph.program.code_identity import goes_by_version
from airgraph.torch_internals.dynamo_absence import Asked, asked_for_attribute, raised_for
from airgraph.torch_internals.dynamo_texts import is_guarded_elsewhere, name_of_imported

__all__ = ["Missing"]


class Missing:
    """Notes it; `guards` are made when all is traced, before the call's effects are there."""

    def __init__(self) -> None:
        self._asked: list[Asked] = []

    def on_asked(self, frame: FrameType) -> None:
        self._add(asked_for_attribute(frame))

    def on_raised(self, frame: FrameType) -> None:
        self._add(raised_for(frame))

    def _add(self, asked: Asked | None) -> None:
        if asked is not None:
            self._asked.append(asked)

    def guards(self, read: Read) -> list[Guard]:
        """Raises Unwritable where a dict lacks a key, and neither that nor its keys can be written; and where Dynamo
        has not found what an object has."""
        found: dict[str, Guard] = {}
        for each in self._asked:
            try:
                made = _guards_of(each, read)
            except (UnsupportedPath, LookupError, AttributeError, TypeError):
                # Nothing that can be found at a call: what the trace was given of it is guarded elsewhere.
                continue
            for guard in made:
                found.setdefault(repr(guard), guard)
        return list(found.values())


def _guards_of(asked: Asked, read: Read) -> list[Guard]:
    text = asked.owner
    if is_guarded_elsewhere(text) or is_made_by_dynamo(text):
        return []
    path = resolve(text, read)
    if goes_by_version(name_of_imported(path.root)):
        return []
    value = read(path)
    if asked.attribute is None:
        return _of_key(path, value, asked)
    if isinstance(value, MethodType):
        # It is made anew whenever it is read, and has what its function has.
        path, value = parse(f"{path.text}.__func__"), value.__func__
    if _never_changes(value, asked.attribute):
        return []
    has = has_attribute(value, asked.attribute)
    if has and (asked.is_lacked or isinstance(value, functools.partial)):
        raise Unwritable(f"{path.text} has an attribute {asked.attribute!r}, which Dynamo does not find")
    guard = (Has if has else Lacks)(path, asked.attribute)
    return [guard] if isinstance(value, torch.Tensor) else [OfClass.of(path, value), guard]


def _never_changes(value: Any, attribute: str) -> bool:
    """Whether every function has it, or it is asked of one that is compared by its package's version."""
    if not isinstance(value, (FunctionType, BuiltinFunctionType)):
        return False
    return any(attribute in vars(each) for each in type(value).__mro__) or goes_by_version(value.__module__)


def _of_key(path: SourcePath, value: Any, asked: Asked) -> list[Guard]:
    if not isinstance(value, Mapping) or value is vars(os.environ)["_data"]:
        # Variables of the environment are compared by `Process`.
        return []
    if asked.key is not None and type(asked.key[0]) in CONSTANTS and asked.key[0] not in value:
        return [OfClass.of(path, value), Excludes(path, asked.key[0])]
    if all(type(each) in (str, int) for each in value):
        return [OfClass.of(path, value), Keys(path, list(value))]
    if asked.by_torch:
        return []
    raise Unwritable(f"{path.text} has keys that are neither text nor integers, and was asked for one that it lacks")
