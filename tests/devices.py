"""Which devices a test can run on here, and why not on the others."""

from __future__ import annotations

import importlib.util
import sys

import pytest
import torch

DEVICES = ("cpu", "cuda", "npu")


def simulator(device: str) -> str | None:
    """The package that serves the device to this process, by conftest.py; None if a card does, or nothing.

    With the repository's folder on the path, `import simcuda` finds a folder, and succeeds: a name among the modules
    says nothing.
    """
    name = {"cuda": "simcuda", "npu": "simcann"}.get(device, "")
    return name if hasattr(sys.modules.get(name), "enable") else None


def launched_with(device: str) -> list[str]:
    """What `python` is given first where a program it starts is to find the device that this process has."""
    name = simulator(device)
    return ["-m", name] if name else []


def why_missing(device: str) -> str | None:
    """None if tests can run on this device."""
    if device == "cuda" and not torch.cuda.is_available():
        return "torch finds no CUDA device"
    if device == "npu":
        if importlib.util.find_spec("torch_npu") is None:
            return "torch_npu is not installed; `make test-npu` runs these on a simulated Ascend runtime"
        if not torch.npu.is_available():
            return "torch_npu finds no device"
    return None


def on_each(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `device` on each that is here, or on those of `--device`; for pytest_generate_tests."""
    if "device" not in metafunc.fixturenames:
        return
    params = []
    for device in metafunc.config.getoption("--device") or DEVICES:
        reason = why_missing(device)
        marks = [pytest.mark.skip(reason=reason)] if reason else []
        params.append(pytest.param(device, marks=marks))
    metafunc.parametrize("device", params)
