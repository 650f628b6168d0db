"""Calls of a device's runtime fail in a capture: pools stay usable, and a neighbour's memory is its own."""

import importlib

import pytest
import torch
from devices import simulator
from reports import counters
from torch import Tensor

import airgraph

pytestmark = pytest.mark.filterwarnings("ignore:airgraph")

_BEGIN = {"cuda": "cudaStreamBeginCapture", "npu": "aclmdlRICaptureBegin"}
_END = {"cuda": "cudaStreamEndCapture", "npu": "aclmdlRICaptureEnd"}
_INSTANTIATE = {"cuda": "cudaGraphInstantiateWithFlags"}
_ALLOCATE = {"cuda": "cudaMalloc", "npu": "aclrtMalloc"}
_REPLAY = {"cuda": "cudaGraphLaunch", "npu": "aclmdlRIExecuteAsync"}


def _failing(device: str, calls: dict[str, str], *, calls_before: int = 0) -> object:
    """A block in which that call of the device's simulated runtime fails once."""
    name = simulator(device)
    if name is None:
        pytest.skip("calls fail by request of simulated runtimes only")
    if device not in calls:
        pytest.skip(f"{device} has no such call")
    return importlib.import_module(name).fail_once(calls[device], calls_before=calls_before)


def _program(x: Tensor) -> Tensor:
    return (x * 2).relu() + x


@torch.no_grad()
@pytest.mark.parametrize("calls", [_BEGIN, _END, _INSTANTIATE], ids=["begin", "end", "instantiate"])
@pytest.mark.parametrize("with_neighbour", [False, True], ids=["alone", "beside_another"])
def test_the_pool_is_usable_afterwards(device: str, calls: dict[str, str], with_neighbour: bool) -> None:
    pool = airgraph.graph_pool_handle(device)
    ours = torch.compile(_program, backend="airgraph", dynamic=False, options={"use_graph_pool": pool})
    first = torch.arange(4.0, device=device)
    if with_neighbour:
        ours(first)
    x = torch.arange(6.0, device=device)
    with _failing(device, calls):
        torch.testing.assert_close(ours(x), _program(x))
    torch.get_device_module(device).empty_cache()
    others = [torch.full((1 << 20,), -1.0, device=device) for _ in range(4)]
    for rows in (4, 7, 8, 4):
        x = torch.arange(float(rows), device=device)
        torch.testing.assert_close(ours(x), _program(x))
    assert all(bool((other == -1).all()) for other in others)
    assert counters()["captures"] == 3


@torch.no_grad()
def test_out_of_memory_in_a_capture(device: str) -> None:
    call = torch.compile(_program, backend="airgraph", dynamic=False)
    x = torch.ones(1 << 20, device=device)
    # On CUDA the first is of the run before the capture.
    with _failing(device, _ALLOCATE, calls_before=1 if device == "cuda" else 0):
        torch.testing.assert_close(call(x), _program(x))
    y = torch.ones(8, device=device)
    torch.testing.assert_close(call(y), _program(y))
    torch.testing.assert_close(call(y), _program(y))


@torch.no_grad()
def test_a_replay_that_fails_says_so_and_the_next_one_runs(device: str) -> None:
    call = torch.compile(_program, backend="airgraph", dynamic=False)
    x = torch.arange(4.0, device=device)
    torch.testing.assert_close(call(x), _program(x))
    with _failing(device, _REPLAY), pytest.raises(airgraph.errors.ReplayError):
        call(x)
    for _ in range(3):
        torch.testing.assert_close(call(x + 1), _program(x + 1))
