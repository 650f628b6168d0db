"""What only CUDA has, on the simulated CUDA runtime with the CUDA build of PyTorch: `--device cuda`."""

import pytest
from devices import simulator


@pytest.fixture(autouse=True)
def simulated() -> None:
    if simulator("cuda") is None:
        pytest.skip("these count calls of the simulated CUDA runtime: see `make test-cuda`")
