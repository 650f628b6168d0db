"""Calls of a device's runtime fail in a capture: pools stay usable, and a neighbour's memory is its own."""

import gc
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


def _failing(device: str, calls: dict[str, str], *, calls_before: int = 0, status: int = 0) -> object:
    """A block in which that call of the device's simulated runtime fails once."""
    name = simulator(device)
    if name is None:
        pytest.skip("calls fail by request of simulated runtimes only")
    if device not in calls:
        pytest.skip(f"{device} has no such call")
    return importlib.import_module(name).fail_once(calls[device], calls_before=calls_before, status=status)


def _program(x: Tensor) -> Tensor:
    return (x * 2).relu() + x


# Listed together: each failure matters in both, and most where a neighbour's memory is at stake.
@torch.no_grad()
@pytest.mark.parametrize(
    ("calls", "with_neighbour"),
    [
        pytest.param(calls, with_neighbour, id=f"{where}-{name}")
        for where, with_neighbour in (("alone", False), ("beside_another", True))
        for name, calls in (("begin", _BEGIN), ("end", _END), ("instantiate", _INSTANTIATE))
    ],
)
def test_the_pool_is_usable_afterwards(device: str, calls: dict[str, str], with_neighbour: bool) -> None:
    pool = airgraph.graph_pool_handle(device)
    ours = torch.compile(_program, backend="airgraph", dynamic=False, options={"use_graph_pool": pool})
    theirs = torch.compile(lambda x: (x - 1).exp(), backend="airgraph", options={"use_graph_pool": pool})
    first = torch.arange(4.0, device=device)
    if with_neighbour:
        theirs(first)
    x = torch.arange(6.0, device=device)
    with _failing(device, calls):
        torch.testing.assert_close(ours(x), _program(x))
    torch.get_device_module(device).empty_cache()
    others = [torch.full((1 << 20,), -1.0, device=device) for _ in range(4)]
    for rows in (4, 7, 8, 4):
        x = torch.arange(float(rows), device=device)
        torch.testing.assert_close(ours(x), _program(x))
        if with_neighbour:
            torch.testing.assert_close(theirs(first), (first - 1).exp())
    assert all(bool((other == -1).all()) for other in others)
    assert counters()["captures"] == 3 + with_neighbour
    # The last graph takes the pool with it, which ends the process where its uses were miscounted.
    del theirs
    gc.collect()
    torch.testing.assert_close(ours(first), _program(first))
    del ours, pool
    torch._dynamo.reset()
    gc.collect()
    torch.get_device_module(device).empty_cache()


@torch.library.custom_op("airgraph_failing::innocent", mutates_args=())
def innocent(x: Tensor) -> Tensor:
    return x + 1


innocent.register_fake(torch.empty_like)


@torch.no_grad()
@pytest.mark.parametrize(
    ("calls", "status"),
    [
        pytest.param(_INSTANTIATE, 0, id="instantiate"),
        # The end of a capture is that as well there. By the number of aclError that means out of memory.
        pytest.param({"npu": "aclmdlRICaptureEnd"}, 207001, id="end"),
    ],
)
def test_no_operator_is_blamed_for_what_the_device_lacks(
    device: str, calls: dict[str, str], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor looked for, by captures of the program up to each operator that might be the cause."""
    block = _failing(device, calls, status=status)
    module, name = torch.get_device_module(device), {"cuda": "CUDAGraph", "npu": "NPUGraph"}[device]
    graphs: list[object] = []
    made = getattr(module, name)
    monkeypatch.setattr(module, name, lambda: graphs.append(None) or made())
    call = torch.compile(lambda x: innocent(x) * 2, backend="airgraph")
    with block, pytest.warns(UserWarning, match="runs eagerly") as said:
        assert call(torch.ones(3, device=device)).tolist() == [4.0] * 3
    assert call(torch.zeros(3, device=device)).tolist() == [2.0] * 3
    (row,) = airgraph.explain().to_dict()["graphs"]
    assert row["state"] == "skipped" and "innocent" not in str(row)
    assert not any("innocent" in str(each.message) for each in said) and len(graphs) == 1


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
