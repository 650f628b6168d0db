"""What is somebody else's: workspaces of libraries, outer captures, other streams, tensors that operators keep."""

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


@torch.no_grad()
def test_within_a_capture_of_the_users_own() -> None:
    call = torch.compile(lambda x: (x * 3).relu() + 1, backend="airgraph")
    x = torch.ones(4, device="cuda")
    captured_before = call(x)
    assert captured_before.tolist() == [4.0] * 4
    graph = torch.cuda.CUDAGraph()
    static = torch.zeros(4, device="cuda")
    with torch.cuda.graph(graph):
        out = call(static)
    for value in (1.0, 5.0):
        static.fill_(value)
        graph.replay()
        assert out.tolist() == [3 * value + 1] * 4
    assert call(x * 2).tolist() == [7.0] * 4
    assert counters()["captures"] == 1 and counters()["eager_calls"] == 1


@torch.no_grad()
def test_an_operator_that_calls_another_compiled_function() -> None:
    inner = torch.compile(lambda x: x * 2, backend="airgraph")

    @torch.library.custom_op("airgraph_cuda::calls_another", mutates_args=())
    def calls_another(x: Tensor) -> Tensor:
        return inner(x).clone()

    calls_another.register_fake(torch.empty_like)
    outer = torch.compile(lambda x: calls_another(x) + 1, backend="airgraph")
    for value in (1.0, 2.0, 3.0):
        assert outer(torch.full((3,), value, device="cuda")).tolist() == [2 * value + 1] * 3


@torch.no_grad()
def test_held_outputs_of_a_graph_that_goes() -> None:
    side = torch.cuda.Stream()
    call = torch.compile(lambda x: x * 2 + 1, backend="airgraph", dynamic=False)
    x = torch.arange(1 << 14, dtype=torch.float32, device="cuda")
    with torch.cuda.stream(side):
        side.wait_stream(torch.cuda.default_stream())
        call(x)
        held = call(x)
    # Dropped from another stream than it ran on, in no order with it but ours.
    del call
    torch._dynamo.reset()
    airgraph.reset()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    torch.full((1 << 20,), -1.0, device="cuda")
    torch.testing.assert_close(held, x * 2 + 1)


@torch.no_grad()
def test_a_tensor_that_an_operator_keeps() -> None:
    kept: list[Tensor] = []
    library = torch.library.Library("airgraph_cuda_kept", "DEF")
    library.define("keeps(Tensor x) -> Tensor")

    def keeps(x: Tensor) -> Tensor:
        if not kept:
            kept.append(torch.full_like(x, 5.0))
        return kept[0]

    library.impl("keeps", keeps, "CUDA")
    torch.library.register_fake("airgraph_cuda_kept::keeps", torch.empty_like, lib=library)
    call = torch.compile(lambda x: (torch.ops.airgraph_cuda_kept.keeps(x), x * 2), backend="airgraph")
    for value in (1.0, 2.0, 3.0, 4.0):
        got, twice = call(torch.full((4,), value, device="cuda"))
        assert got.tolist() == [5.0] * 4 and twice.tolist() == [2 * value] * 4
        assert kept[0].tolist() == [5.0] * 4
    kept.clear()
    del library


@torch.no_grad()
def test_outputs_fed_back_on_streams_by_turns() -> None:
    call = torch.compile(lambda x: x + 1, backend="airgraph")
    streams = [torch.cuda.Stream() for _ in range(3)]
    x = torch.zeros(64, device="cuda")
    last = torch.cuda.current_stream()
    for step in range(30):
        stream = streams[step % 3]
        stream.wait_stream(last)
        with torch.cuda.stream(stream):
            x.record_stream(stream)
            x = call(x)
        last = stream
    torch.cuda.current_stream().wait_stream(last)
    assert x.tolist() == [30.0] * 64
