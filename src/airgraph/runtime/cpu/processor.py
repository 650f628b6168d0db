"""Which processor this is."""

from __future__ import annotations

import functools
import platform
from pathlib import Path

__all__ = ["cpu_model"]


@functools.cache
def cpu_model() -> str:
    """Its name as the kernel gives it, else whatever Python knows of it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return named[0] if named else "unknown"
