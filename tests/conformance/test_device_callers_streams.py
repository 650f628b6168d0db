"""Callers on several streams: whose memory they are given, and what is asked of streams that they have left."""

import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from reports import counters, report
from torch import Tensor

import airgraph

_MANY = 1 << 16


@pytest.fixture(autouse=True)
def _not_on_cpu(device: str) -> None:
    if device == "cpu":
        pytest.skip("streams of the CPU are those of a graph")


def _module(device: str) -> Any:
    return torch.get_device_module(device)


def _called_once(
    device: str, program: Callable[[Tensor], Tensor], stream: Any, *, dynamic: bool = False
) -> Callable[..., Tensor]:
    call = torch.compile(program, backend="airgraph", fullgraph=True, dynamic=dynamic)
    with _module(device).stream(stream):
        call(torch.ones(_MANY, device=device))
    _module(device).synchronize()
    return call


@torch.no_grad()
def test_a_moved_output_lies_in_memory_of_the_stream_that_it_was_handed_out_on(device: str) -> None:
    """Who frees it there frees it for that stream, and not for another that does not wait."""
    module = _module(device)
    here, there = module.Stream(), module.Stream()
    call = _called_once(device, lambda x: x + 1, here)
    ones, fives = torch.ones(_MANY, device=device), torch.full((_MANY,), 5.0, device=device)
    module.synchronize()
    for _ in range(5):
        with module.stream(here):
            held = call(ones)
        with module.stream(there):
            call(fives)
        with module.stream(here):
            delay = torch.zeros(1, device=device)
            for _ in range(5):
                delay = delay + 1
            seen = held * 2
            del held
        with module.stream(there):
            other = torch.full((_MANY,), 7.0, device=device)
        module.synchronize()
        assert set(seen.tolist()) == {4.0}
        del other, seen


@torch.no_grad()
def test_an_output_that_a_capture_on_another_stream_moves(device: str) -> None:
    module = _module(device)
    here, there = module.Stream(), module.Stream()
    call = _called_once(device, lambda x: (x + 1) * 2 - 1, here, dynamic=True)
    ones = torch.ones(_MANY, device=device)
    module.synchronize()
    for more in (8, 16, 24):
        longer = torch.ones(_MANY + more, device=device)
        module.synchronize()
        with module.stream(here):
            held = call(ones)
        with module.stream(there):
            call(longer)
        with module.stream(here):
            seen = held * 2
        module.synchronize()
        assert set(seen.tolist()) == {6.0}


@torch.no_grad()
@pytest.mark.parametrize("times", [10, 70])
def test_an_output_that_was_fed_back_is_right_on_its_own_stream(device: str, times: int) -> None:
    """Also where no call has come on that stream for long."""
    module = _module(device)
    here, there = module.Stream(), module.Stream()
    call = _called_once(device, lambda x: x + 1, here)
    ones, fifties = torch.ones(_MANY, device=device), torch.full((_MANY,), 50.0, device=device)
    module.synchronize()
    for _ in range(3):
        with module.stream(here):
            held = call(ones)
        there.wait_stream(here)
        with module.stream(there):
            for _ in range(times):
                call(held)
        with module.stream(here):
            before = held * 2
        with module.stream(there):
            call(fifties)
        with module.stream(here):
            after = held * 2
        module.synchronize()
        assert (set(before.tolist()), set(after.tolist())) == ({4.0}, {4.0})


@torch.no_grad()
@pytest.mark.parametrize("is_new", [False, True])
def test_a_call_while_a_stream_of_the_last_calls_is_captured(device: str, is_new: bool) -> None:
    """It runs eagerly, and the capture is as it would be without it. is_new: it would be a capture itself."""
    module = _module(device)
    first, second = module.Stream(), module.Stream()
    call = _called_once(device, lambda x: x + 1, first, dynamic=True)
    for stream in (second, first):
        with module.stream(stream):
            call(torch.ones(_MANY, device=device))
    x, out = torch.ones(4, device=device), torch.empty(4, device=device)
    given = torch.full((_MANY + 8 * is_new,), 50.0, device=device)
    module.synchronize()
    got: list[Tensor] = []

    def elsewhere() -> None:
        # The mode without gradients is each thread's own.
        with torch.no_grad(), module.stream(second), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got.append(call(given))

    graph = module.NPUGraph() if device == "npu" else module.CUDAGraph()
    with module.graph(graph, stream=first, capture_error_mode="thread_local"):
        out.copy_(x * 3)
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    graph.replay()
    module.synchronize()
    assert out.tolist() == [3.0] * 4
    assert set(got[0].tolist()) == {51.0}
    # And then it is captured as before.
    with module.stream(second):
        assert set(call(given).tolist()) == {51.0}
    assert counters()["eager_calls"] == 1


@torch.no_grad()
def test_what_an_operator_keeps_is_not_written_by_graphs_that_were_there_before(device: str) -> None:
    """It is taken from the pool amid a capture, where an earlier graph has its intermediates."""
    tables: dict[int, Tensor] = {}

    @torch.library.custom_op(f"airgraph_kept_{device}::scaled", mutates_args=())
    def scaled(x: Tensor) -> Tensor:
        table = tables.get(x.numel())
        if table is None:
            table = tables[x.numel()] = torch.full((x.numel(),), 3.0, device=x.device)
        return x * table

    scaled.register_fake(torch.empty_like)

    def large(x: Tensor) -> Tensor:
        return torch.stack([torch.cos(torch.sin(x + i)) for i in range(6)]).sum(0)

    options = {"use_graph_pool": airgraph.graph_pool_handle(device)}
    before = torch.compile(large, backend="airgraph", options=options)
    keeps = torch.compile(lambda x: scaled(x) + 1, backend="airgraph", options=options)
    both = torch.compile(lambda x: scaled(large(x) * 0 + 1) + 1, backend="airgraph", dynamic=True)
    ones = torch.ones(_MANY, device=device)
    expected = large(ones)
    torch.testing.assert_close(before(ones), expected)
    for _ in range(3):
        assert set(keeps(ones).tolist()) == {4.0}
        torch.testing.assert_close(before(ones), expected)
    # Recaptured once: it then knows what is kept.
    assert counters()["recaptures"] == 1
    reasons = [row["reason"] for row in report()["graphs"]]
    assert sum("keeps memory that this one would write" in reason for reason in reasons) == 1
    tables.clear()
    for _ in range(2):
        for given in (ones, ones[: _MANY // 2], ones):
            assert set(both(given).tolist()) == {4.0}
