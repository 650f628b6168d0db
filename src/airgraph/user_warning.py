"""Warnings point at the line of the user's program that led to them."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch

__all__ = ["warn_user"]

_PASSED_OVER = (str(Path(__file__).parent), str(Path(torch.__file__).parent), "<")


def warn_user(message: str) -> None:
    """Issue a UserWarning at the innermost frame that is neither airgraph's nor torch's, nor of generated code."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PASSED_OVER):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(f"airgraph: {message}", stacklevel=depth + 1)
