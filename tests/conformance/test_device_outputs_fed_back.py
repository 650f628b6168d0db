"""Outputs that come back as arguments: their memory changes hands, their values never do."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import airgraph
from airgraph.memory.pool import MemoryPool

_ANY = st.integers(0, 50)
_STEPS = st.one_of(
    st.tuples(st.just("call"), _ANY, _ANY, st.sampled_from((0, 1)), st.sampled_from((0, 0, 0, 1))),
    st.tuples(st.just("call"), st.just(-1), st.just(0), st.sampled_from((0, 1)), st.just(0)),
    st.tuples(st.just("drop"), _ANY),
    st.tuples(st.just("write"), _ANY),
    st.tuples(st.just("free"), _ANY),
)


def _step(state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    new = state * 0.5 + x
    return new, (new + 1).sum(0)


@dataclass
class _Run:
    """Our calls beside eager's. Arguments and results of both are kept until they are dropped."""

    device: str
    calls: list
    ours: list[Tensor] = field(default_factory=list)
    theirs: list[Tensor] = field(default_factory=list)
    made: int = 0
    other: object = None

    def step(self, what: str, *which: int) -> None:
        if what == "call" or not self.ours:
            self.call(*(which if what == "call" else (0, 0, 0, 0)))
            return
        index = which[0] % len(self.ours)
        if what == "drop":
            del self.ours[index], self.theirs[index]
        elif what == "write":
            self.ours[index].mul_(-1)
            self.theirs[index].mul_(-1)
        else:
            self.ours.pop(index).untyped_storage().resize_(0)
            del self.theirs[index]

    def call(self, state: int, x: int, graph: int, stream: int) -> None:
        while len(self.ours) < 2 + graph:
            self.made += 1
            fresh = torch.linspace(-1, 1, 12, device=self.device).view(3, 4) * self.made
            self.ours.append(fresh)
            self.theirs.append(fresh.clone())
        args = [(kept[state % len(kept)], kept[x % len(kept)]) for kept in (self.ours, self.theirs)]
        with self._on(stream):
            new, total = self.calls[graph](*args[0])
        new_of_eager, total_of_eager = _step(*args[1])
        torch.testing.assert_close(total, total_of_eager)
        self.ours.append(new)
        self.theirs.append(new_of_eager)

    def check(self) -> None:
        for ours, theirs in zip(self.ours, self.theirs, strict=True):
            torch.testing.assert_close(ours, theirs)

    @contextmanager
    def _on(self, stream: int) -> Iterator[None]:
        """Work on another stream, if it is not 0; the current one waits for it at the end."""
        if stream == 0 or self.device == "cpu":
            yield
            return
        module = getattr(torch, self.device)
        self.other = self.other or module.Stream()
        self.other.wait_stream(module.current_stream())
        with module.stream(self.other):
            yield
        module.current_stream().wait_stream(self.other)


@torch.no_grad()
@pytest.mark.parametrize("pools", ["one", "two"])
def test_any_use_of_them_gives_what_eager_gives(
    device: str, pool: MemoryPool, pools: str, request: pytest.FixtureRequest
) -> None:
    options = {"use_graph_pool": pool} if pools == "one" else {}
    # One program for each: two compilations of one function share its graphs.
    first = torch.compile(lambda s, x: _step(s, x), backend="airgraph", fullgraph=True, options=options)
    second = torch.compile(lambda s, x: _step(s, x), backend="airgraph", fullgraph=True, options=options)
    examples = 300 if request.config.getoption("--full-sweep") else 15

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(st.lists(_STEPS, max_size=40))
    @torch.no_grad()
    def check(steps: list[tuple]) -> None:
        run = _Run(device, [first, second])
        for step in steps:
            run.step(*step)
        run.check()

    check()
    assert airgraph.explain().to_dict()["counters"]["eager_calls"] == 0


@torch.no_grad()
def test_a_state_costs_no_memory_of_the_device_a_call(device: str) -> None:
    if device == "cpu":
        pytest.skip("memory of the CPU is not counted; outputs there have memory of their own")
    step = torch.compile(lambda state: state * 0.5 + 1, backend="airgraph", fullgraph=True)
    module = getattr(torch, device)
    state, expected = torch.zeros(1000, device=device), torch.zeros(1000)
    for number in range(8):
        if number == 4:
            before = module.memory_stats()["allocation.all.allocated"]
        state = step(state)
        expected = expected * 0.5 + 1
    assert module.memory_stats()["allocation.all.allocated"] == before
    torch.testing.assert_close(state.cpu(), expected)


@torch.no_grad()
def test_one_that_lies_in_a_buffer_comes_back_beside_the_next(device: str) -> None:
    call = torch.compile(_step, backend="airgraph", fullgraph=True)
    ours, theirs = ([torch.ones(3, 4, device=device) * number for number in (1, 2)] for _ in range(2))
    for _ in range(4):
        # The last but one lies in the first buffer from then on, and stays there while the last goes to the second.
        for state, x in ((-1, 0), (-2, -1), (-2, -1)):
            total, expected = call(ours[state], ours[x])[1], _step(theirs[state], theirs[x])[1]
            torch.testing.assert_close(total, expected)
            ours.append(call(ours[state], ours[x])[0])
            theirs.append(_step(theirs[state], theirs[x])[0])
        torch.testing.assert_close(ours, theirs)


@torch.no_grad()
def test_one_that_lies_in_a_buffer_outlives_its_graph(device: str) -> None:
    step = torch.compile(lambda state: state * 2, backend="airgraph", fullgraph=True)
    states = [torch.ones(6, device=device)]
    for _ in range(3):
        states.append(step(states[-1]))
    del step
    torch._dynamo.reset()
    airgraph.reset()
    gc.collect()
    others = [torch.full((6,), 9.0, device=device) for _ in range(20)]
    assert [state[0].item() for state in states] == [1, 2, 4, 8]
    assert all(other[0].item() == 9 for other in others)


@torch.no_grad()
def test_one_call_on_another_stream_does_not_have_outputs_copied_from_then_on(device: str) -> None:
    if device == "cpu":
        pytest.skip("work on the CPU is in order")
    module = getattr(torch, device)
    double = torch.compile(lambda x: x * 2, backend="airgraph", fullgraph=True)
    x = torch.ones(5, device=device)
    double(x)
    own = double(x).data_ptr()
    other = module.Stream()
    other.wait_stream(module.current_stream())
    with module.stream(other):
        result = double(x)
    module.current_stream().wait_stream(other)
    assert result.data_ptr() == own
    assert result[0].item() == 2
    del result
    assert [double(x).data_ptr() for _ in range(3)] == [own] * 3
