"""Every test begins with nothing compiled and nothing counted."""

from collections.abc import Iterator

import pytest
import torch

import airgraph


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", action="append", help="run the conformance tests on this device only; may be repeated")
    parser.addoption("--full-sweep", action="store_true", help="take all operator samples, not a few of each")


@pytest.fixture(autouse=True)
def fresh_state() -> Iterator[None]:
    torch._dynamo.reset()
    airgraph.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
    airgraph.reset()
