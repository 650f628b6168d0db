"""Settings of the process that PyTorch shows nowhere else."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.modules.module
import torch.utils._device
from torch.utils._config_module import ConfigModule as SettingsModule

from airgraph.torch_internals.modes import function_modes

__all__ = [
    "DEVICE_CONTEXT",
    "SettingsModule",
    "cublas_reductions",
    "default_device",
    "device_settings",
    "forward_hooks_of_all_modules",
    "hooks_of_all_modules",
    "kernel_settings",
    "modes_by_device",
]

# The full name of the mode that `torch.set_default_device` puts on.
DEVICE_CONTEXT = "torch.utils._device.DeviceContext"


def default_device() -> torch.device | None:
    """That of the innermost `with torch.device(...)`, or as `torch.set_default_device` has set it, or None."""
    contexts = [mode for mode in function_modes() if isinstance(mode, torch.utils._device.DeviceContext)]
    return contexts[-1].device if contexts else torch.utils._device.CURRENT_DEVICE


def modes_by_device() -> list[Any]:
    """The function modes; for those of `with torch.device(...)`, of which each block has another, their devices."""
    of_devices = torch.utils._device.DeviceContext
    return [mode.device if type(mode) is of_devices else mode for mode in function_modes()]


def device_settings() -> dict[str, Any]:
    """The namespace that holds CURRENT_DEVICE and DeviceContext."""
    return vars(torch.utils._device)


def kernel_settings() -> tuple[bool, bool]:
    """Whether memory is filled where results must be deterministic, and whether oneDNN is used."""
    return torch._C._get_deterministic_fill_uninitialized_memory(), torch._C._get_mkldnn_enabled()


def cublas_reductions() -> tuple[Any, Any, Any]:
    """Whether products on CUDA may be computed in TF32, and sums of fp16 and bf16 in themselves.

    By the flags themselves: `torch.backends` refuses to answer once a precision was set in the new way.
    """
    return (
        torch._C._get_cublas_allow_tf32(),
        torch._C._get_cublas_allow_fp16_reduced_precision_reduction(),
        torch._C._get_cublas_allow_bf16_reduced_precision_reduction(),
    )


def forward_hooks_of_all_modules() -> tuple[dict[int, Any], ...]:
    """Where PyTorch keeps those that run before and after the forward of every module, by a number of its own each."""
    held = vars(torch.nn.modules.module)
    return held["_global_forward_pre_hooks"], held["_global_forward_hooks"]


def hooks_of_all_modules() -> dict[str, list[Any]]:
    """What `torch.nn.modules.module.register_module_forward_hook` and its like were given, by their kind."""
    held = vars(torch.nn.modules.module)
    kinds = (name for name in sorted(held) if name.startswith("_global_") and name.endswith("hooks"))
    return {name: list(held[name].values()) for name in kinds if held[name]}
