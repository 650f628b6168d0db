"""Make the operators known to PyTorch, unless torch_npu has done so."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import torch

from airgraph.errors import OperatorsExist
from airgraph.npu_operators.declaration import NAMESPACE
from airgraph.npu_operators.table import OPERATORS

__all__ = ["callables", "register"]

_lock = threading.Lock()
# A library's operators go when it does.
_registered: torch.library.Library | None = None


def register() -> None:
    """Register every operator in the namespace `npu`. A second call does nothing.

    From then on `import torch_npu` raises ImportError unless a module of that name is there already: its own operators
    of the same names would end the process. Raises OperatorsExist where torch_npu's are there.
    """
    global _registered
    with _lock:
        if _registered is not None:
            return
        existing = [each.name for each in OPERATORS if hasattr(getattr(torch.ops, NAMESPACE), each.name)]
        if existing:
            raise OperatorsExist(
                f"torch_npu's operators are registered in this process, {existing[0]} among them: use those. "
                "airgraph's are for processes without torch_npu."
            )
        library = torch.library.Library(NAMESPACE, "FRAGMENT")
        for operator in OPERATORS:
            name = operator.qualified_name
            library.define(operator.schema, tags=(torch.Tag.pt2_compliant_tag,))
            if operator.fake is None:
                library.impl(name, operator.checked(operator.kernel), "CompositeImplicitAutograd")
            else:
                library.impl(name, operator.checked(operator.kernel), "CompositeExplicitAutograd")
                torch.library.register_fake(f"{NAMESPACE}::{name}", operator.checked(operator.fake), lib=library)
        sys.meta_path.insert(0, _NoTorchNpu())
        _registered = library


def callables() -> dict[str, Callable[..., Any]]:
    """What scripts find in the module `torch_npu`: each operator by its name there, `npu_rms_norm`.

    Call `register` first: AttributeError before.
    """
    return {operator.name: getattr(getattr(torch.ops, NAMESPACE), operator.name) for operator in OPERATORS}


class _NoTorchNpu:
    """Refuses an import that would register the operators a second time, where PyTorch can only end the process."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # Where it is not installed, that is what an import says.
        if name == "torch_npu" and PathFinder.find_spec(name, path) is not None:
            raise ImportError(
                "torch_npu cannot be imported any more: airgraph's operators of the same names are registered in this "
                "process. Import torch_npu before anything asks airgraph for them.",
                name=name,
            )
        return None
