"""Devices of others."""

from __future__ import annotations

from types import ModuleType

import torch

__all__ = ["name_private_backend", "serve_private_backend"]


def name_private_backend(name: str, module: ModuleType) -> None:
    """Name PyTorch's device for backends of others, which something must serve. module: becomes `torch.<name>`."""
    torch.utils.rename_privateuse1_backend(name)
    torch.utils.generate_methods_for_privateuse1_backend()
    torch._register_device_module(name, module)


def serve_private_backend() -> None:
    """Let it be a device that Python registers: without generators, pinned memory and storages of its own."""
    from torch.utils import backend_registration as registration

    torch._C._acc.register_python_privateuseone_hook(registration._DummyPrivateUse1Hook())
    torch._C._acc.register_python_privateuseone_device_guard(registration._DummyDeviceGuard())
