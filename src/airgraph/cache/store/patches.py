"""What a process has put in place of PyTorch's own: methods, functions and kernels, which nothing guards."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch

from airgraph.program.code_identity import goes_by_version, identity_of
from airgraph.torch_internals.dispatcher import replaced_kernels

__all__ = ["patches_of_torch"]

# What no graph holds, and what tools replace: they stay beside a graph that they do not change.
_AROUND_GRAPHS = {"compile", "load", "save"}
_MODULES = (torch, torch.nn.functional, torch.linalg, torch.special, torch.fft)


def patches_of_torch() -> list[str]:
    """Place, name and identity of each method and function that is not the one that PyTorch, whose version is known,
    comes with, and the names of kernels that Python has given to PyTorch's operators."""
    replaced = (f"{name}: {identity_of(code)}" for name, code in _patches.now())
    return sorted((*replaced, *(f"kernel {name}" for name in replaced_kernels())))


class _Patches:
    """Looks anew where something else stands in one of the places."""

    def __init__(self) -> None:
        self._members: list[Any] = []
        self._found: list[tuple[str, Any]] = []

    def now(self) -> list[tuple[str, Any]]:
        places = [*_MODULES, torch.Tensor, torch.nn.Parameter, *_modules_of_torch(torch.nn.Module)]
        members = [member for place in places for member in list(vars(place).values())]
        if len(members) != len(self._members) or not all(map(operator.is_, members, self._members)):
            self._found = list(_replaced_in(places))
            self._members = members
        return self._found


_patches = _Patches()


def _replaced_in(places: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for place in places:
        name = place.__name__ if isinstance(place, ModuleType) else f"{place.__module__}.{place.__qualname__}"
        for member_name, member in list(vars(place).items()):
            code = _code_of(member)
            if (
                code is not None
                and member_name not in _AROUND_GRAPHS
                and not _is_torchs(code, member_name, name.rpartition(".")[2])
            ):
                yield f"{name}.{member_name}", code


def _modules_of_torch(class_: type) -> Iterator[type]:
    yield class_
    each: type
    for each in class_.__subclasses__():
        # Others, such as those that FX makes, come and go.
        if each.__module__.startswith("torch.nn."):
            yield from _modules_of_torch(each)


def _code_of(member: Any) -> Any:
    match member:
        case staticmethod() | classmethod():
            member = member.__func__
        case property():
            member = member.fget
    return member if isinstance(member, (FunctionType, BuiltinFunctionType)) else None


def _is_torchs(code: Any, name: str, place: str) -> bool:
    if isinstance(code, BuiltinFunctionType):
        # Some are named for their place too, such as torch.fft.rfft, or without an underscore, such as logsigmoid.
        known = code.__name__.replace("_", "")
        return known in (name.replace("_", ""), f"{place}{name}".replace("_", "")) or name.startswith("__")
    # Also what decorators of the standard library have made of PyTorch's.
    module = str(code.__globals__.get("__name__"))
    return goes_by_version(module) or module == "typing_extensions"
