"""Where objects of PyTorch keep what makes them up."""

from __future__ import annotations

__all__ = ["AUTOCAST_SETTINGS", "MODULE_NAMESPACES"]

# Of a torch.nn.Module: dicts of its parameters, buffers and modules.
MODULE_NAMESPACES = ("_parameters", "_buffers", "_modules")
# Of a block of torch.autocast.
AUTOCAST_SETTINGS = ("device", "fast_dtype", "_enabled", "_cache_enabled")
