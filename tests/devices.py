"""Which devices a test can run on here, and why not on the others."""

from __future__ import annotations

import importlib.util

import pytest
import torch

DEVICES = ("cpu", "cuda", "npu")


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
