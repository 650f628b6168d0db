"""What is somebody else's: outer captures, other streams, tensors that operators keep, state that nobody sees."""

import gc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from doors import both_doors, through
from reports import counters, report
from torch import Tensor

import airgraph


def _module(device: str) -> Any:
    if device == "cpu":
        pytest.skip("work on the CPU has no streams that a capture could belong to")
    return getattr(torch, device)


@torch.no_grad()
def test_hidden_state_is_touched_once_a_call(device: str) -> None:
    count = torch.zeros(1, device=device)
    library = torch.library.Library("airgraph_counted", "DEF")
    library.define("counts(Tensor x) -> Tensor")
    library.impl("counts", lambda x: x + count.add_(1), {"npu": "PrivateUse1"}.get(device, device.upper()))
    torch.library.register_fake("airgraph_counted::counts", torch.empty_like, lib=library)
    call = torch.compile(lambda x: torch.ops.airgraph_counted.counts(x) * 2, backend="airgraph")
    got = [call(torch.zeros(2, device=device))[0].item() for _ in range(4)]
    assert got == [2, 4, 6, 8] and count.item() == 4
    del library


def _program(x: Tensor) -> Tensor:
    return (x * 3).relu() + 1


def _check_captured_by_hand(call: Callable[[Tensor], Tensor], device: str) -> None:
    """What calls the program, in a graph of the user's own."""
    module = _module(device)
    graph = module.NPUGraph() if device == "npu" else module.CUDAGraph()
    static = torch.zeros(4, device=device)
    with module.graph(graph):
        out = call(static)
    for value in (1.0, 5.0):
        static.fill_(value)
        graph.replay()
        assert out.tolist() == [3 * value + 1] * 4


@torch.no_grad()
@both_doors
def test_within_a_capture_of_the_users_own(door: str, device: str, tmp_path: Path) -> None:
    call = through(door, _program, tmp_path)
    x = torch.ones(4, device=device)
    captured_before = call(x)
    assert captured_before.tolist() == [4.0] * 4
    _check_captured_by_hand(call, device)
    assert call(x * 2).tolist() == [7.0] * 4
    assert counters()["captures"] == 1 and counters()["eager_calls"] == 1


@torch.no_grad()
@both_doors
def test_a_first_call_within_a_capture_of_the_users_own(door: str, device: str, tmp_path: Path) -> None:
    _module(device)
    call = through(door, _program, tmp_path)
    _check_captured_by_hand(call, device)
    for _ in range(2):
        assert call(torch.full((4,), 2.0, device=device)).tolist() == [7.0] * 4
    assert counters()["captures"] == 1 and counters()["eager_calls"] == 1


@torch.no_grad()
def test_an_operator_that_calls_another_compiled_function(device: str) -> None:
    inner = torch.compile(lambda x: x * 2, backend="airgraph")

    @torch.library.custom_op("airgraph_others::calls_another", mutates_args=())
    def calls_another(x: Tensor) -> Tensor:
        return inner(x).clone()

    calls_another.register_fake(torch.empty_like)
    outer = torch.compile(lambda x: calls_another(x) + 1, backend="airgraph")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for value in (1.0, 2.0, 3.0):
            assert outer(torch.full((3,), value, device=device)).tolist() == [2 * value + 1] * 3
    # The inner call is refused, which costs the outer one nothing.
    assert not [each for each in said if str(each.message).startswith("airgraph")]
    if device != "cpu":
        (graph,) = [row for row in report()["graphs"] if row["state"] == "captured"]
        assert graph["replays"] == 3 and counters()["captures"] == 1


@torch.no_grad()
def test_held_outputs_of_a_graph_that_goes(device: str) -> None:
    module = _module(device)
    side = module.Stream()
    call = torch.compile(lambda x: x * 2 + 1, backend="airgraph", dynamic=False)
    x = torch.arange(1 << 14, dtype=torch.float32, device=device)
    with module.stream(side):
        side.wait_stream(module.default_stream())
        call(x)
        held = call(x)
    # Dropped from another stream than it ran on, in no order with it but ours.
    del call
    torch._dynamo.reset()
    airgraph.reset()
    gc.collect()
    module.empty_cache()
    module.synchronize()
    torch.full((1 << 20,), -1.0, device=device)
    torch.testing.assert_close(held, x * 2 + 1)


@torch.no_grad()
@pytest.mark.parametrize("afterwards", ["another graph of the pool", "nothing"])
def test_buffers_of_inputs_of_a_graph_that_goes_while_it_runs(device: str, afterwards: str) -> None:
    """They are memory that a replay on another stream may not have read yet."""
    module = _module(device)
    side, pool = module.Stream(), airgraph.graph_pool_handle(device)
    options = {"use_graph_pool": pool}

    def compiled(scale: float) -> Any:
        return torch.compile(lambda x: (x * scale).relu() + x, backend="airgraph", dynamic=False, options=options)

    call = compiled(2.0)
    x = torch.arange(1 << 14, dtype=torch.float32, device=device)
    call(x)
    side.wait_stream(module.current_stream())
    with module.stream(side):
        held = call(x)
    # From here on nothing orders the two streams but what airgraph does.
    del call
    torch._dynamo.reset()
    gc.collect()
    if afterwards == "another graph of the pool":
        another = compiled(-3.0)
        for _ in range(2):
            torch.testing.assert_close(another(x + 1), x + 1)
    else:
        airgraph.reset()
        del pool, options
        gc.collect()
        module.empty_cache()
    others = [torch.full((1 << 14,), float("nan"), device=device) for _ in range(8)]
    module.synchronize()
    torch.testing.assert_close(held, x * 3)
    assert len(others) == 8


@torch.no_grad()
def test_a_tensor_that_an_operator_keeps(device: str) -> None:
    kept: list[Tensor] = []
    library = torch.library.Library("airgraph_kept", "DEF")
    library.define("keeps(Tensor x) -> Tensor")

    def keeps(x: Tensor) -> Tensor:
        if not kept:
            kept.append(torch.full_like(x, 5.0))
        return kept[0]

    library.impl("keeps", keeps, {"npu": "PrivateUse1"}.get(device, device.upper()))
    torch.library.register_fake("airgraph_kept::keeps", torch.empty_like, lib=library)
    call = torch.compile(lambda x: (torch.ops.airgraph_kept.keeps(x), x * 2), backend="airgraph")
    for value in (1.0, 2.0, 3.0, 4.0):
        got, twice = call(torch.full((4,), value, device=device))
        assert got.tolist() == [5.0] * 4 and twice.tolist() == [2 * value] * 4
        assert kept[0].tolist() == [5.0] * 4
    kept.clear()
    del library


@torch.no_grad()
def test_outputs_fed_back_on_streams_by_turns(device: str) -> None:
    module = _module(device)
    call = torch.compile(lambda x: x + 1, backend="airgraph")
    streams = [module.Stream() for _ in range(3)]
    x = torch.zeros(64, device=device)
    last = module.current_stream()
    for step in range(30):
        stream = streams[step % 3]
        stream.wait_stream(last)
        with module.stream(stream):
            x.record_stream(stream)
            x = call(x)
        last = stream
    module.current_stream().wait_stream(last)
    assert x.tolist() == [30.0] * 64
