"""What `torch.npu` has to choose CANN's kernels and formats by: accepted and noted, for it says nothing of results."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

__all__ = ["Config", "unheeded"]

log = logging.getLogger(__name__)

# Kept as they are set.
_SETTINGS = {"allow_internal_format": False}


class Config:
    """`torch.npu.config`. Setting a name that torch_npu does not have raises AttributeError."""

    def __init__(self) -> None:
        vars(self).update(_SETTINGS)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _SETTINGS:
            raise AttributeError(f"torch.npu.config.{name}: the stand-in for torch_npu has {', '.join(_SETTINGS)}")
        log.info("torch.npu.config.%s = %r changes nothing here: it chooses formats of CANN's", name, value)
        vars(self)[name] = value


def unheeded(name: str) -> Callable[..., None]:
    """A function that changes nothing, and says so in the log."""

    def take(*args: Any, **kwargs: Any) -> None:
        log.info("torch.npu.%s changes nothing here: it chooses how CANN compiles kernels", name)

    take.__name__ = take.__qualname__ = name
    return take
