"""A replay is work of the current stream."""

import threading

import pytest
import torch

import airgraph
from airgraph.runtime.registry import runtime_for


@torch.no_grad()
def test_a_replay_follows_the_current_stream(device: str) -> None:
    if device == "cpu":
        pytest.skip("work on the CPU runs in the calling thread")
    module = getattr(torch, device)
    compiled = torch.compile(lambda x: (x * 2).relu(), backend="airgraph", fullgraph=True)
    side = module.Stream()
    for value in range(1, 6):
        with module.stream(side):
            x = torch.full((1000,), float(value), device=device)
            out = compiled(x)
            total = out.sum()
        side.synchronize()
        assert total.item() == 2000.0 * value


@torch.no_grad()
def test_calls_on_several_streams_do_not_disturb_one_another(device: str) -> None:
    """Buffers and outputs are the graph's: a call on another stream waits for the one before."""
    if device == "cpu":
        pytest.skip("work on the CPU runs in the calling thread")
    module = getattr(torch, device)
    compiled = torch.compile(lambda x: (x * 2).exp().log() + 1, backend="airgraph", fullgraph=True)
    streams = [module.Stream(), module.Stream()]
    inputs = [torch.full((4096,), float(i % 7), device=device) for i in range(40)]
    compiled(inputs[0])
    module.synchronize()
    results = []
    for i, x in enumerate(inputs):
        with module.stream(streams[i % 2]):
            results.append(compiled(x) * 1.0)
    module.synchronize()
    for x, result in zip(inputs, results, strict=True):
        torch.testing.assert_close(result, x * 2 + 1)


def test_threads_with_a_stream_each(device: str) -> None:
    if device == "cpu":
        pytest.skip("work on the CPU runs in the calling thread")
    module = getattr(torch, device)
    with torch.no_grad():
        compiled = torch.compile(lambda x: x * 2 + 1, backend="airgraph", fullgraph=True)
        compiled(torch.zeros(4096, device=device))
    wrong: list[float] = []

    def work(seed: int) -> None:
        with torch.no_grad(), module.stream(module.Stream()):
            for i in range(20):
                value = float(seed * 20 + i)
                result = compiled(torch.full((4096,), value, device=device)) * 1.0
                module.current_stream().synchronize()
                if not bool((result == value * 2 + 1).all()):
                    wrong.append(value)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@torch.no_grad()
def test_a_graph_waits_for_an_external_event(device: str) -> None:
    """Recorded outside by a stream that the graph knows nothing of, waited for within the graph at each replay."""
    runtime = runtime_for(device)
    if device == "cpu":
        pytest.skip("there are no events between a graph and work outside")
    module = getattr(torch, device)
    event, side = runtime.event("late", external=True), module.Stream()
    assert event is runtime.event("late", external=True) is not runtime.event("late")
    late = torch.zeros(1 << 16, device=device)

    @torch.library.custom_op(f"airgraph_conformance::read_late_{device}", mutates_args=())
    def read_late(x: torch.Tensor) -> torch.Tensor:
        stream = module.current_stream()
        event.wait(stream)
        if hasattr(event, "reset"):
            # On Ascend one record is good for one wait, unless the graph resets it.
            event.reset(stream)
        return x + late

    read_late.register_fake(torch.empty_like)
    compiled = torch.compile(lambda x: read_late(x * 2) + 1, backend="airgraph", fullgraph=True)
    x = torch.ones(1 << 16, device=device)
    for value in range(1, 6):
        side.wait_stream(module.current_stream())
        with module.stream(side):
            for _ in range(20):
                late.mul_(0.5)
            late.fill_(value)
            event.record(side)
        assert (compiled(x) == 3.0 + value).all()
    assert airgraph.explain().to_dict()["counters"] == {"captures": 1, "recaptures": 0, "replays": 5, "eager_calls": 0}
