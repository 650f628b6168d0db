"""Where Dynamo finds that an object lacks something, and makes no guard of it."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

from airgraph.torch_internals.dynamo_sources import name_of_source, source_of_variable

__all__ = ["Asked", "asked_for_attribute", "code_that_asks_for_attributes", "code_that_raises", "raised_for"]

# Where the key is among the locals of what looks one up in a dict.
_KEYS = ("arg", "key", "index", "item")


class Asked(NamedTuple):
    """owner: Dynamo's path to the object. attribute: what it was asked for, or None, and then `key` tells; that is a
    variable of Dynamo's, or None where it is not known."""

    owner: str
    attribute: str | None
    key: Any = None


def code_that_raises() -> CodeType:
    """Runs for each exception that the code raises which is traced."""
    from torch._dynamo.exc import raise_observed_exception

    return raise_observed_exception.__code__


def code_that_asks_for_attributes() -> Iterator[CodeType]:
    """Runs for `hasattr`, and for `getattr` with a default, of what Dynamo does not guard that of."""
    from torch._dynamo.variables import functions, misc

    for place, name in (
        (misc, "PythonModuleVariable"), (functions, "BaseUserFunctionVariable"), (functions, "UserFunctionVariable"),
        (functions, "SkipFunctionVariable"), (functions, "FunctoolsPartialVariable"),
    ):  # fmt: skip
        # Which of them have one of their own differs from version to version.
        method = vars(getattr(place, name, object)).get("call_obj_hasattr")
        if method is not None:
            yield method.__code__


def asked_for_attribute(frame: FrameType) -> Asked | None:
    """What a frame of `code_that_asks_for_attributes` is about; None: what was made in the trace."""
    held = frame.f_locals
    source = source_of_variable(held["self"])
    return None if source is None or _is_torchs(held["tx"]) else Asked(name_of_source(source), held["name"])


def raised_for(frame: FrameType) -> Asked | None:
    """What is missing where a frame of `code_that_raises` raises for that. None: nothing, or what the trace made."""
    held = frame.f_locals
    exception = held["exc_type"]
    if not issubclass(exception, (AttributeError, KeyError)) or _is_torchs(held["tx"]):
        return None
    caller = frame.f_back
    while caller is not None and str(caller.f_globals.get("__name__")).startswith("torch._dynamo.variables"):
        found = caller.f_locals
        source = source_of_variable(found.get("self"))
        if source is not None:
            if issubclass(exception, KeyError):
                key = next((found[each] for each in _KEYS if each in found), None)
                return Asked(name_of_source(source), None, key)
            attribute = found.get("name")
            if not isinstance(attribute, str):
                # Of the attribute itself, such as a slot.
                attribute, source = getattr(source, "member", None), getattr(source, "base", None)
            if isinstance(attribute, str) and source is not None:
                return Asked(name_of_source(source), attribute)
        caller = caller.f_back
    return None


def _is_torchs(translator: Any) -> bool:
    """Whether PyTorch's own code is traced, which is compared by its version."""
    return str(translator.f_globals.get("__name__")).startswith("torch.")
