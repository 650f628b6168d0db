"""Puts the stand-in where a program looks for torch_npu."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch

from airgraph.errors import NotServed, OptionError
from airgraph.npu_operators import callables
from airgraph.npu_operators import register as register_operators
from airgraph.standin.device import register
from airgraph.standin.npu import NpuModule
from airgraph.torchair.module_refusal import refuse_modules
from airgraph.torchair.mount import mount

__all__ = ["install"]


class _TorchNpu(ModuleType):
    """`torch_npu`."""

    def __init__(self, npu: NpuModule, target: torch.device) -> None:
        super().__init__("torch_npu", __doc__)
        self.__version__ = f"{torch.__version__.partition('+')[0]}+standin"
        self.__path__: list[str] = []
        self.__spec__ = ModuleSpec("torch_npu", None, is_package=True)
        self.npu, self.target = npu, target
        # As attributes of its own, by which guards read them.
        vars(self).update(callables())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotServed(
            f"torch_npu.{name}: the stand-in for torch_npu does not have it. Install torch_npu, or run it with "
            "`airgraph run --simulate`"
        )


def install(device: str = "cpu") -> None:
    """Let this process take "npu" for another device, once and for good. device: "cpu" or "cuda".

    Call it before the program, and before torch_npu is imported. Raises OptionError for another device, one that is not
    there, and where torch_npu or another stand-in is imported.
    """
    if device not in ("cpu", "cuda"):
        raise OptionError(f"install: device: expected 'cpu' or 'cuda', got {device!r}")
    if device == "cuda" and not torch.cuda.is_available():
        raise OptionError("install: device 'cuda': torch finds no CUDA device. Take 'cpu'.")
    if "torch_npu" in sys.modules:
        held = sys.modules["torch_npu"]
        if isinstance(held, _TorchNpu) and held.target.type == device:
            return
        raise OptionError("install: torch_npu is imported, so the device npu is taken. Start another process.")
    target = torch.device(device)
    npu = NpuModule(target)
    npu.__spec__ = ModuleSpec("torch.npu", None, is_package=True)
    register(target, npu)
    register_operators()
    sys.modules["torch.npu"] = npu
    sys.modules["torch_npu"] = _TorchNpu(npu, target)
    sys.modules["torch_npu.npu"] = npu
    for package in ("torch_npu", "torch.npu"):
        refuse_modules(package, _why_no_module)
    mount()


def _why_no_module(name: str) -> str:
    return (
        f"{name}: the stand-in for torch_npu does not have this module. Install torch_npu, or run it with "
        "`airgraph run --simulate`"
    )
