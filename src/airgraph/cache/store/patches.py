"""What a process has put in place of PyTorch's own: methods of tensors and modules, which nothing guards."""

from __future__ import annotations

from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

from airgraph.program.code_identity import goes_by_version, identity_of

__all__ = ["patches_of_torch"]


def patches_of_torch() -> list[str]:
    """Class, name and identity of each method that is not the one that PyTorch, whose version is known, comes with."""
    return sorted(
        f"{class_.__module__}.{class_.__qualname__}.{name}: {identity_of(code)}"
        for class_ in (torch.Tensor, torch.nn.Parameter, *_modules_of_torch(torch.nn.Module))
        for name, member in list(vars(class_).items())
        if (code := _code_of(member)) is not None and not _is_torchs(code, name)
    )


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


def _is_torchs(code: Any, name: str) -> bool:
    if isinstance(code, BuiltinFunctionType):
        return code.__name__ == name or name.startswith("__")
    # Also what decorators of the standard library have made of PyTorch's.
    module = str(code.__globals__.get("__name__"))
    return goes_by_version(module) or module == "typing_extensions"
