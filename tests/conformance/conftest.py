"""Every test here runs on every device that is present: what one promises, all do."""

from collections.abc import Iterator

import pytest
import torch
from devices import on_each

import airgraph
from airgraph.memory.pool import MemoryPool

pytest_generate_tests = on_each


@pytest.fixture
def pool(device: str) -> Iterator[MemoryPool]:
    yield airgraph.graph_pool_handle(device)
    torch._dynamo.reset()
    airgraph.reset()
