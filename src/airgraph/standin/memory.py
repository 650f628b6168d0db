"""Memory of this process, in place of a card's: as Linux counts it."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["free_and_total_nbytes", "peak_nbytes", "reset_peak", "resident_nbytes"]

_PROC = Path("/proc/self")


def resident_nbytes() -> int:
    return _status("VmRSS")


def peak_nbytes() -> int:
    """The most that was resident since the start of the process, or since `reset_peak`."""
    return _status("VmHWM")


def reset_peak() -> None:
    (_PROC / "clear_refs").write_text("5")


def free_and_total_nbytes() -> tuple[int, int]:
    """Of the machine."""
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


def _status(name: str) -> int:
    lines = (_PROC / "status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
