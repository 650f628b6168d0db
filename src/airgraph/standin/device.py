"""The device "npu", whose tensors lie on another.

PyTorch keeps one device for backends of others, PrivateUse1, which torch_npu takes as well. It is called "npu" here,
and its kernels that make memory make it on the target. So all that takes a device, such as
`torch.zeros(2, device="npu")`, `x.to("npu:0")`, `model.npu()` and `torch.set_default_device("npu")`, gives tensors of
the target: no function is replaced, nothing is looked at on the way of a call, and compiled programs see tensors of the
target only. Traces take the device at its word, and so are told of the target as well.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from airgraph.runtime.engine.loading import engine
from airgraph.torch_internals.backends import name_private_backend
from airgraph.torch_internals.fake_tensors import take_device_for

__all__ = ["NAME", "register"]

NAME = "npu"
# For as long as the process lives.
_registered: list[torch.library.Library] = []


def register(target: torch.device, module: ModuleType) -> None:
    """Name the device. module: what becomes `torch.npu`. To be called once a process."""
    name_private_backend(NAME, module)
    engine().serve_private_device(target.type)
    take_device_for(NAME, target)
    library = torch.library.Library("aten", "IMPL")

    def empty(size: Any, *, dtype: Any = None, memory_format: Any = None, **_: Any) -> torch.Tensor:
        made = {} if memory_format is None else {"memory_format": memory_format}
        return torch.empty(size, dtype=dtype, device=target, **made)

    def empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> torch.Tensor:
        return torch.empty_strided(size, stride, dtype=dtype, device=target)

    library.impl("empty.memory_format", empty, "PrivateUse1")
    library.impl("empty_strided", empty_strided, "PrivateUse1")
    _registered.append(library)
    # Before PyTorch's own, which would make a storage of the device that is not there.
    torch.serialization.register_package(0, lambda storage: None, lambda storage, at: _loaded(storage, at, target))
    moved: Any = torch.Tensor
    moved.npu = lambda tensor, device=None, non_blocking=False, **_: tensor.to(target, non_blocking=non_blocking)
    moved.is_npu = property(lambda tensor: tensor.device.type == target.type)


def _loaded(storage: Any, location: str, target: torch.device) -> Any:
    """A storage for where `torch.load` is told to put it; None leaves it to others."""
    if location.partition(":")[0] != NAME:
        return None
    return torch.serialization.default_restore_location(storage, str(target))
