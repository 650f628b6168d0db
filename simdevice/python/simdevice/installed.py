# SPDX-License-Identifier: Apache-2.0
"""Where the packages are that run on a simulated runtime, found without importing them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

__all__ = ["NotAvailable", "torch_folder"]


class NotAvailable(RuntimeError):
    """PyTorch cannot be put on a simulated runtime in this process. The message says what to do."""


def torch_folder() -> Path:
    """The installed torch package."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise NotAvailable(f"torch is not installed in {sys.prefix}.")
    return Path(spec.origin).parent
