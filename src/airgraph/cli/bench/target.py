"""What does TARGET name? A script's or a module's function, a model of the demo, or one of Hugging Face."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from airgraph.cli.bench import pretrained
from airgraph.cli.bench.user_code import called
from airgraph.cli.bench.workload import Workload
from airgraph.cli.demo import models
from airgraph.cli.failure import UsageProblem

__all__ = ["FORMS", "find"]

FORMS = (
    "a Python file (model.py, or model.py:name), a module (package.module, or package.module:name), "
    f"a model of the demo ({', '.join(models.MODELS)}), or a model of Hugging Face (its folder, or owner/name)"
)
# What is looked for where TARGET names no attribute.
FUNCTION, MODEL, INPUTS = "bench", "model", "inputs"
RETURNED = "(module or function, arguments[, keyword arguments])"
# Names of a module in a message.
_MOST_NAMED = 8


def find(
    target: str,
    *,
    device: str | None,
    dtype: torch.dtype | None,
    tokens: int,
    announce: Callable[[str], None] = lambda _: None,
) -> Workload:
    """The workload that TARGET names, moved to a device and a type where they are given; tokens: see `pretrained`.

    Raises UsageProblem for what is not there, or does not follow the protocol, and for whatever the user's code raises;
    CommandError for a model that cannot be loaded.
    """
    place, _, attribute = target.rpartition(":") if ":" in target else (target, "", "")
    if place.endswith(".py"):
        announce(f"importing {place}")
        return _of_module(called(place, _import_file, place), place, attribute).placed(device, dtype)
    if not attribute and target in models.MODELS:
        return pretrained.demo_workload(target, device=device, dtype=dtype, tokens=tokens, announce=announce)
    if not attribute and (os.path.isdir(target) or _is_model_id(target)):
        return pretrained.workload(target, device=device, dtype=dtype, tokens=tokens, announce=announce)
    announce(f"importing {place}")
    return _of_module(called(place, _import_module, place, target), place, attribute).placed(device, dtype)


def _is_model_id(target: str) -> bool:
    owner, _, name = target.partition("/")
    return bool(owner and name) and "/" not in name and not os.path.exists(target) and owner not in (".", "..", "~")


def _import_file(path: str) -> ModuleType:
    """A script as a module of its own name, with what lies beside it, as its own imports expect."""
    if not os.path.isfile(path):
        raise UsageProblem(f"there is no script {path}: give {FORMS}")
    file = Path(os.path.realpath(path))
    # Another module of that name, such as a script called torch.py, keeps its place.
    name = file.stem if file.stem not in sys.modules else f"airgraph_bench_{file.stem}"
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _import_module(name: str, target: str) -> ModuleType:
    sys.path.insert(0, os.getcwd())
    try:
        there = all(part.isidentifier() for part in name.split(".")) and importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:
        # A package above it. What the package itself does not find is another matter.
        if error.name is None or not name.startswith(error.name):
            raise
        there = False
    if not there:
        close = difflib.get_close_matches(target, models.MODELS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UsageProblem(f"unknown target {target!r}: {hint}give {FORMS}")
    return importlib.import_module(name)


def _of_module(module: ModuleType, place: str, attribute: str) -> Workload:
    if not attribute:
        return _by_convention(module, place)
    given: Any = module
    for part in attribute.split("."):
        given = getattr(given, part, _ABSENT)
    if given is _ABSENT:
        close = difflib.get_close_matches(attribute, vars(module), n=1)
        own = [name for name, each in vars(module).items() if _may_be_timed(each, module)][:_MOST_NAMED]
        there = f"it has {', '.join(own)}" if own else f"give it a function that returns {RETURNED}"
        raise UsageProblem(f"{place} has no {attribute!r}: {f'did you mean {close[0]!r}?' if close else there}")
    return _with_inputs(given, module, place) if isinstance(given, nn.Module) else _returned_by(given, place, attribute)


def _may_be_timed(value: Any, module: ModuleType) -> bool:
    """Whether it is a model, or a function or class of this module and no other."""
    return isinstance(value, nn.Module) or (callable(value) and getattr(value, "__module__", None) == module.__name__)


def _by_convention(module: ModuleType, place: str) -> Workload:
    function, model = getattr(module, FUNCTION, None), getattr(module, MODEL, None)
    if callable(function):
        return _returned_by(function, place, FUNCTION)
    if callable(model) and hasattr(module, INPUTS):
        return _with_inputs(model, module, place)
    raise UsageProblem(
        f"{place} does not say what to time: let it have a function {FUNCTION}() that returns {RETURNED}, or "
        f"{MODEL} and {INPUTS}, or name such a function as {place}:name"
    )


_ABSENT = object()


def _with_inputs(model: Callable[..., Any], module: ModuleType, place: str) -> Workload:
    inputs = getattr(module, INPUTS, _ABSENT)
    if inputs is _ABSENT:
        raise UsageProblem(f"{place} names a model and has no {INPUTS}: give its arguments that name, as a tuple")
    if isinstance(inputs, Mapping):
        return Workload(place, model, (), dict(inputs))
    return Workload(place, model, _arguments(inputs, f"{INPUTS} of {place}"))


def _returned_by(function: Any, place: str, name: str) -> Workload:
    what = f"{name}() of {place}"
    if not callable(function):
        raise UsageProblem(f"{place}:{name} is no function that returns {RETURNED}, but of type {_kind(function)}")
    if inspect.isfunction(function) and (asked := _required(function)):
        raise UsageProblem(
            f"{what} asks for {', '.join(asked)}: name a function without arguments that returns {RETURNED}"
        )
    found = called(what, function)
    if not isinstance(found, (tuple, list)) or not 2 <= len(found) <= 3 or not callable(found[0]):
        got = f"({', '.join(map(_kind, found))})" if isinstance(found, (tuple, list)) else _kind(found)
        raise UsageProblem(f"{what} must return {RETURNED}, got {got}")
    kwargs = found[2] if len(found) == 3 else {}
    if not isinstance(kwargs, Mapping):
        raise UsageProblem(f"{what} must return keyword arguments as a dict, got {_kind(kwargs)}")
    shown = place if name == FUNCTION else f"{place}:{name}"
    return Workload(shown, found[0], _arguments(found[1], what), dict(kwargs))


def _required(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in parameters if each.default is each.empty and each.kind not in open_ended]


def _arguments(given: Any, where: str) -> tuple[Any, ...]:
    if isinstance(given, (tuple, list)):
        return tuple(given)
    if isinstance(given, Tensor):
        return (given,)
    raise UsageProblem(f"{where}: the arguments must be a tuple, a list or one tensor, got {_kind(given)}")


def _kind(value: Any) -> str:
    return type(value).__name__
