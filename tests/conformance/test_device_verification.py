"""verify_every compares replays with eager and names the first node that differs."""

import itertools

import pytest
import torch
from torch import nn

import airgraph
from airgraph.errors import ReplayError

_calls = itertools.count()


@torch.library.custom_op("airgraph_verification::drifts", mutates_args=())
def drifts(x: torch.Tensor) -> torch.Tensor:
    return x + 0.5 * next(_calls)


drifts.register_fake(torch.empty_like)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.register_buffer("cache", torch.zeros(6))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.linear(x).relu()
        self.cache.add_(y.sum(0))
        return y + self.cache, nn.functional.dropout(y)


@torch.no_grad()
def test_replays_that_are_right_pass_and_leave_no_trace(device: str) -> None:
    model = Model().to(device)
    compiled = torch.compile(model, backend="airgraph", fullgraph=True, dynamic=True, options={"verify_every": 2})
    plain = torch.compile(model, backend="airgraph", fullgraph=True, dynamic=True)
    inputs = [torch.randn(rows, 6, device=device) for rows in (3, 5, 3, 5, 3)]
    results = []
    for run in (compiled, plain):
        torch.manual_seed(5)
        model.cache.zero_()
        results.append([tuple(out.cpu() for out in run(x)) for x in inputs])
        results[-1].append((model.cache.cpu(), torch.rand(3)))
        torch._dynamo.reset()
    for ours, theirs in zip(*results, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)


@torch.no_grad()
def test_the_first_node_that_differs_is_named(device: str) -> None:
    if device != "cpu":
        pytest.skip("no Python runs within a replay on an accelerator, so that it could differ")

    def program(x: torch.Tensor) -> torch.Tensor:
        y = (x * 2).relu()
        for _ in range(5):
            y = y.exp().log()
        y = drifts(y)
        for _ in range(7):
            y = y * 0.5 + 1
        return y

    compiled = torch.compile(program, backend="airgraph", fullgraph=True, options={"verify_every": 3})
    x = torch.rand(4)
    compiled(x)
    compiled(x)
    message = r"differs from eager: output 0 by .* first to differ is node drifts.*, airgraph_verification::drifts at "
    with pytest.raises(ReplayError, match=message + r".*test_device_verification.py:\d+, by 0.5 at most"):
        compiled(x)
    # The process goes on; the next comparison is three calls later.
    compiled(x)


@torch.no_grad()
def test_a_mutated_input_that_differs_is_named(device: str) -> None:
    if device != "cpu":
        pytest.skip("see above")

    def program(cache: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        cache.copy_(drifts(cache + x))
        return x + 1

    compiled = torch.compile(program, backend="airgraph", fullgraph=True, options={"verify_every": 1})
    with pytest.raises(ReplayError, match=r"mutated input 0 \(cache\) by .*drifts"):
        compiled(torch.zeros(3), torch.ones(3))


@torch.no_grad()
def test_never_by_default(device: str) -> None:
    compiled = torch.compile(lambda x: drifts(x), backend="airgraph", fullgraph=True)
    for _ in range(5):
        compiled(torch.ones(3, device=device))
    assert airgraph.explain().to_dict()["counters"]["eager_calls"] == 0
