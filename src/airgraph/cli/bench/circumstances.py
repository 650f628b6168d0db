"""Where and with what a measurement was made."""

from __future__ import annotations

import datetime as dt
import os
import platform
from importlib import metadata
from typing import Any

import torch

import airgraph
from airgraph.runtime.cpu.processor import cpu_model

__all__ = ["circumstances"]

_PACKAGES = ("torch", "torch_npu", "transformers", "numpy")


def circumstances() -> dict[str, Any]:
    """Date, machine, versions and threads, under the names of benchmarks/results."""
    return {
        "date": dt.datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": {
            "cpu": cpu_model(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "simd": torch.backends.cpu.get_cpu_capability(),
            "arch": platform.machine(),
            "system": f"{platform.system()} {platform.release()}",
            "load_1min": round(os.getloadavg()[0], 2),
        },
        "versions": {
            "python": platform.python_version(),
            "airgraph": airgraph.__version__,
            **{package: _version(package) for package in _PACKAGES},
        },
        "threads": [torch.get_num_threads()],
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
