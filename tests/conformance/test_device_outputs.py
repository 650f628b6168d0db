"""An output that the caller holds is not corrupted by any graph of its pool, and policies say what else may happen."""

import random
import warnings

import pytest
import torch
from reports import counters

from airgraph.errors import ReplayError
from airgraph.memory.pool import MemoryPool


def _two_heads(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    hidden = (x * 2).relu() + 1
    both = torch.cat([hidden, hidden * 3])
    return both[: x.shape[0]], both[x.shape[0] :], hidden.sum(-1)


@torch.no_grad()
def test_outputs_of_neighbours_are_preserved(device: str, pool: MemoryPool) -> None:
    """For views of one another, for outputs that alias inputs, and for those of calls long ago."""

    def program(x: torch.Tensor, cache: torch.Tensor) -> tuple[torch.Tensor, ...]:
        cache.add_(1)
        both = torch.cat([x, x * 2])
        return both[: len(x)], both[len(x) :], both, x, cache

    options = {"use_graph_pool": pool}
    first = torch.compile(program, backend="airgraph", dynamic=True, options=options)
    second = torch.compile(lambda x: (x.exp() * 100).relu(), backend="airgraph", dynamic=True, options=options)
    held = []
    for call in range(30):
        x, cache = torch.randn(3 + call % 4, 5, device=device), torch.zeros(2, device=device)
        outs = first(x, cache)
        assert outs[3] is x or outs[3].data_ptr() == x.data_ptr()
        assert outs[4].data_ptr() == cache.data_ptr()
        held.append((outs, program(x, torch.zeros(2, device=device)), outs[0][1:]))
        second(torch.randn(100 + call % 3, 50, device=device))
    for ours, theirs, view in held:
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)
        torch.testing.assert_close(view, theirs[0][1:])
        # What shared memory shares it still.
        ours[2].fill_(7)
        assert ours[0].eq(7).all() and ours[1].eq(7).all() and view.eq(7).all()


@torch.no_grad()
def test_outputs_held_for_a_thousand_calls(device: str, request: pytest.FixtureRequest) -> None:
    """Of a simulated device a quarter of them, unless in a full sweep: it takes 30 times as long for each."""
    calls = 1000 if device == "cpu" or request.config.getoption("--full-sweep") else 250
    compiled = torch.compile(_two_heads, backend="airgraph", dynamic=True, fullgraph=True)
    choice = random.Random(5)
    inputs = {rows: torch.randn(rows, 11, device=device) for rows in range(2, 9)}
    held = []
    for _ in range(calls):
        x = inputs[choice.randrange(2, 9)]
        outs = compiled(x)
        if choice.random() < 0.5:
            part = choice.randrange(3)
            held.append((outs[part], _two_heads(x)[part]))
        x.mul_(-0.99)
    for ours, theirs in held:
        assert torch.equal(ours.cpu(), theirs.cpu())
    assert counters()["captures"] == 7


@torch.no_grad()
def test_policies_hold_across_the_graphs_of_a_pool(device: str) -> None:
    def make(policy: str):
        torch._dynamo.reset()
        options = {"live_outputs": policy}
        return torch.compile(lambda x: x + 1, backend="airgraph", dynamic=True, options=options)

    small, large = torch.zeros(2, device=device), torch.zeros(5, device=device)
    strict = make("error")
    strict(small)
    strict(large)
    held = strict(small)
    with pytest.raises(ReplayError, match="still held"):
        strict(large)
    del held
    assert strict(large).tolist() == [1.0] * 5
    lenient = make("warn")
    lenient(small)
    lenient(large)
    held = lenient(small)
    with pytest.warns(UserWarning, match="still held"):
        lenient(large)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        lenient(small)
    careless = make("overwrite")
    careless(small)
    held = careless(small)
    careless(small + 5)
    assert held.tolist() == [6.0] * 2


@torch.no_grad()
@pytest.mark.parametrize("policy", ["error", "warn", "preserve"])
def test_a_neighbour_with_another_policy_loses_nothing(device: str, pool: MemoryPool, policy: str) -> None:
    first = torch.compile(
        lambda x: x + 0.5, backend="airgraph", options={"use_graph_pool": pool, "live_outputs": policy}
    )
    second = torch.compile(lambda x: x * 7, backend="airgraph", options={"use_graph_pool": pool})
    x = torch.ones(100, device=device)
    second(x)
    held = first(x)
    second(x)
    assert held.tolist() == [1.5] * 100


@torch.no_grad()
def test_force_recapture_keeps_what_the_caller_holds(device: str) -> None:
    compiled = torch.compile(lambda x: x * 3, backend="airgraph", options={"force_recapture": True})
    held = [compiled(torch.full((100,), float(i), device=device)) for i in range(6)]
    for i, out in enumerate(held):
        assert out.tolist() == [i * 3.0] * 100
    assert counters()["captures"] == 6
