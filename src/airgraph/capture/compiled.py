"""Does a call of a function lead to one that is compiled? Otherwise it would be executed, operator by operator."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

from torch import nn

from airgraph.capture.ledger import ledger
from airgraph.torch_internals import dynamo

__all__ = ["leads_to_compiled"]

# A method of an object that holds a model that has compiled parts, called by a function: as far as that.
_FARTHEST = 3


def leads_to_compiled(function: Any) -> bool:
    """Whether it is compiled or holds what is: the objects, modules and functions that it is made of or names."""
    cached = {id(each) for each in ledger.cached_alive()}
    # With the objects, so that no other one gets the number of one that is gone.
    seen = {id(function): function}
    found = [function]
    for _ in range(_FARTHEST + 1):
        if any(id(each) in cached or dynamo.is_compiled(each) for each in found):
            return True
        parts = {id(part): part for each in found for part in _parts(each) if id(part) not in seen}
        seen.update(parts)
        found = list(parts.values())
    return False


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, (type, types.ModuleType)):
        return
    if isinstance(value, (list, tuple)):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, types.MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, types.FunctionType):
        yield from vars(value).values()
        yield from (cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType())
        yield from (value.__globals__[name] for name in value.__code__.co_names if name in value.__globals__)
    elif callable(value):
        yield type(value).__call__
        for each in value.modules() if isinstance(value, nn.Module) else (value,):
            yield each
            yield from getattr(each, "__dict__", {}).values()
