"""Devices of others."""

from __future__ import annotations

from types import ModuleType

__all__ = ["name_private_backend"]


def name_private_backend(name: str, module: ModuleType) -> None:
    """Let PyTorch's device for backends of others be one that Python registers. module: becomes `torch.<name>`."""
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend(name, backend_module=module)
