"""Every test here runs on every device that is present: what one promises, all do."""

from collections.abc import Iterator

import pytest
import torch
from devices import DEVICES, why_missing

import airgraph
from airgraph.memory.pool import MemoryPool


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" not in metafunc.fixturenames:
        return
    wanted = metafunc.config.getoption("--device") or DEVICES
    params = []
    for device in wanted:
        reason = why_missing(device)
        marks = [pytest.mark.skip(reason=reason)] if reason else []
        params.append(pytest.param(device, marks=marks))
    metafunc.parametrize("device", params)


@pytest.fixture
def pool(device: str) -> Iterator[MemoryPool]:
    yield airgraph.graph_pool_handle(device)
    torch._dynamo.reset()
    airgraph.reset()
