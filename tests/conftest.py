"""Every test begins with nothing compiled and nothing counted."""

from collections.abc import Iterator

import pytest
import torch

import airgraph


@pytest.fixture(autouse=True)
def fresh_state() -> Iterator[None]:
    torch._dynamo.reset()
    airgraph.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
    airgraph.reset()
