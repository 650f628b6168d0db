"""What only CUDA has, on the simulated CUDA runtime with the CUDA build of PyTorch: `--device cuda`."""

import importlib.util

import pytest


@pytest.fixture(autouse=True)
def simulated() -> None:
    if not getattr(importlib.util.find_spec("simcuda"), "origin", None):
        pytest.skip("these count calls of the simulated CUDA runtime: see `make test-cuda`")
