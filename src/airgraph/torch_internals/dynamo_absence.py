"""Where Dynamo finds that an object lacks something, and makes no guard of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

from airgraph.torch_internals.dynamo_sources import name_of_source, source_of_variable

__all__ = ["Asked", "asked_for_attribute", "code_that_asks_for_attributes", "code_that_raises", "raised_for"]

# Where the key is among the locals of what looks one up in a dict.
_KEYS = ("arg", "key", "index", "item")


class Asked(NamedTuple):
    """What an object was asked for.

    owner: Dynamo's path to it. attribute: a name, or None: a key. key: what it is to Python, or None where it has no
    value before the call. is_lacked: an exception said so. by_torch: PyTorch's own code asks.
    """

    owner: str
    attribute: str | None
    key: tuple[Any] | None
    is_lacked: bool
    by_torch: bool


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
    if source is None:
        return None
    return Asked(name_of_source(source), held["name"], None, is_lacked=False, by_torch=_is_torchs(held["tx"]))


def raised_for(frame: FrameType) -> Asked | None:
    """What is missing where a frame of `code_that_raises` raises for that. None: nothing, or what the trace made."""
    held = frame.f_locals
    exception, by_torch = held["exc_type"], _is_torchs(held["tx"])
    if not issubclass(exception, (AttributeError, KeyError)):
        return None
    of: Callable[[Any, dict[str, Any]], tuple[str, str | None, tuple[Any] | None] | None]
    of = _key_of if issubclass(exception, KeyError) else _attribute_of
    caller = frame.f_back
    while caller is not None and str(caller.f_globals.get("__name__")).startswith("torch._dynamo.variables"):
        source = source_of_variable(caller.f_locals.get("self"))
        found = None if source is None else of(source, caller.f_locals)
        if found is not None:
            owner, attribute, key = found
            return Asked(owner, attribute, key, is_lacked=True, by_torch=by_torch)
        caller = caller.f_back
    return None


def _key_of(source: Any, held: dict[str, Any]) -> tuple[str, None, tuple[Any] | None]:
    for name in _KEYS:
        if name in held:
            try:
                return name_of_source(source), None, (held[name].as_python_constant(),)
            except Exception:  # Dynamo raises anything.
                break
    return name_of_source(source), None, None


def _attribute_of(source: Any, held: dict[str, Any]) -> tuple[str, str, None] | None:
    name = held.get("name")
    if not isinstance(name, str):
        # Its path leads to the attribute that is missing: it is a slot that holds nothing, for instance.
        name, source = getattr(source, "member", None), getattr(source, "base", None)
    return (name_of_source(source), name, None) if isinstance(name, str) and source is not None else None


def _is_torchs(translator: Any) -> bool:
    return str(translator.f_globals.get("__name__")).partition(".")[0] == "torch"
