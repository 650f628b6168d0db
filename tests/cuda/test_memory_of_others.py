"""What is somebody else's: workspaces of libraries, and allocators other than PyTorch's own."""

import gc

import pytest
import torch
from reports import counters
from torch import Tensor

import airgraph


@torch.no_grad()
@pytest.mark.parametrize("pools", ["one", "two"])
def test_workspaces_belong_to_the_pool(pools: str) -> None:
    def make(weight: Tensor) -> object:
        return torch.compile(lambda x: (x @ weight).relu() @ weight, backend="airgraph")

    weights = [torch.randn(16, 16, device="cuda") for _ in range(2)]
    calls = [make(weight) for weight in weights]
    x = torch.randn(4, 16, device="cuda")
    for call in calls:
        call(x)
    # As Inductor's graph trees do.
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    others = [torch.full((9 << 20,), 7.0, device="cuda") for _ in range(6)]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    results = []
    for _ in range(3):
        for call, weight, stream in zip(calls, weights, streams if pools == "two" else streams[:1] * 2, strict=True):
            with torch.cuda.stream(stream):
                results.append((call(x), weight))
    torch.cuda.synchronize()
    for result, weight in results:
        torch.testing.assert_close(result, (x @ weight).relu() @ weight)
    assert all(bool((other == 7).all()) for other in others)


@torch.no_grad()
def test_workspaces_of_side_streams_belong_to_the_pool() -> None:
    """Graphs of two pools have the same side streams."""

    def make(weight: Tensor) -> object:
        def program(x: Tensor) -> Tensor:
            with airgraph.scope.stream("beside"):
                beside = x @ weight
            return x @ weight.t() + beside

        return torch.compile(program, backend="airgraph", fullgraph=True)

    weights = [torch.randn(16, 16, device="cuda") for _ in range(2)]
    first, second = (make(weight) for weight in weights)
    x = torch.randn(4, 16, device="cuda")
    first(x)
    second(x)
    del first
    torch._dynamo.reset_code_caches()
    gc.collect()
    torch.cuda.empty_cache()
    others = [torch.full((9 << 20,), 7.0, device="cuda") for _ in range(6)]
    for _ in range(3):
        torch.testing.assert_close(second(x), x @ weights[1].t() + x @ weights[1])
    assert all(bool((other == 7).all()) for other in others)


@torch.no_grad()
def test_only_the_native_allocator_is_captured_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "cudaMallocAsync")
    call = torch.compile(lambda x: x + 1, backend="airgraph")
    with pytest.warns(UserWarning, match="torch's allocator is 'cudaMallocAsync'"):
        assert call(torch.ones(3, device="cuda")).tolist() == [2.0] * 3
    assert counters()["captures"] == 0 and counters()["eager_calls"] == 1
