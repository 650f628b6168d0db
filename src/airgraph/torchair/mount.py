"""Puts this package where programs that were written for TorchAir look for it."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from airgraph import torchair
from airgraph.torch_internals import dynamo
from airgraph.torchair import npugraph_ex
from airgraph.torchair.module_refusal import refuse_modules
from airgraph.torchair.refused import MODULES

__all__ = ["mount"]


def mount() -> None:
    """Let `import torchair`, `import npugraph_ex` and their submodules find airgraph's. Call it before a program.

    So do `torch.compile(backend="npugraph_ex")` and `backend="npu"`, and `torch.npu.npugraph_ex` where there is a
    `torch.npu`. It holds for the process; what was imported under these names before stays with whoever imported it.
    Imports neither torch_npu nor torch._dynamo.
    """
    _put()
    refuse_modules("torchair", _why_no_module)
    # torch_npu puts its own there once more when Dynamo is imported.
    dynamo.when_imported(_serve)


def _put() -> None:
    for name, module in (("torchair", torchair), ("npugraph_ex", npugraph_ex)):
        _put_at(name, module)
    npu = sys.modules.get("torch.npu") or sys.modules.get("torch_npu.npu")
    if npu is not None:
        npu.npugraph_ex = npugraph_ex  # type: ignore[attr-defined]
        _put_at(f"{npu.__name__}.npugraph_ex", npugraph_ex)


def _put_at(name: str, package: ModuleType) -> None:
    """A package and its submodules that are imported, under another name."""
    below = f"{package.__name__}."
    for each in [each for each in sys.modules if each.startswith(f"{name}.")]:
        del sys.modules[each]
    sys.modules[name] = package
    for each, module in list(sys.modules.items()):
        if each.startswith(below):
            sys.modules[f"{name}.{each.removeprefix(below)}"] = module


def _serve() -> None:
    _put()
    dynamo.register_backend(npugraph_ex.backend, "npugraph_ex")
    dynamo.register_backend(_npu, "npu")


def _why_no_module(name: str) -> str | None:
    why = MODULES.get(name.split(".")[1])
    return why and f"{name} is not offered: {why}. See from_torchair.md in the documentation of airgraph"


def _npu(*args: Any, **kwargs: Any) -> Any:
    return torchair.get_npu_backend()(*args, **kwargs)
