"""Random sequences of calls, held and dropped outputs, moved inputs, recaptures and resets give what eager gives."""

from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import airgraph

_ROWS = st.integers(1, 6)
_STEPS = st.one_of(
    st.tuples(st.just("call"), st.sampled_from((0, 1)), _ROWS, st.booleans()),
    st.tuples(st.just("call"), st.sampled_from((0, 1)), _ROWS, st.booleans()),
    st.tuples(st.just("drop"), st.integers(0, 20)),
    st.tuples(st.just("write"), st.integers(0, 20)),
    st.tuples(st.just("move"), st.sampled_from((0, 1)), st.sampled_from(("weight", "cache"))),
    st.tuples(st.just("feed back"), st.sampled_from((0, 1))),
    st.tuples(st.just("reset")),
)


class Model(nn.Module):
    """Outputs that are views of one another, an input, a mutated buffer and a reduction."""

    def __init__(self, factor: float, device: str) -> None:
        super().__init__()
        self.factor = factor
        self.weight = torch.linspace(-1, 1, 49, device=device).view(7, 7) * factor
        self.cache = torch.zeros(7, device=device)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = (x @ self.weight).relu()
        self.cache.add_(hidden.sum(0))
        both = torch.cat([hidden * self.factor, x + self.cache])
        return both[: x.shape[0]], both[x.shape[0] :], both.t(), x, hidden.sum()


@dataclass
class Held:
    ours: tuple[torch.Tensor, ...]
    theirs: tuple[torch.Tensor, ...]

    def check(self) -> None:
        for a, b in zip(self.ours, self.theirs, strict=True):
            torch.testing.assert_close(a, b)


@dataclass
class Run:
    """One sequence: our models, compiled, beside the same in eager mode."""

    device: str
    ours: list[Model]
    compiled: list
    theirs: list[Model]
    held: list[Held] = field(default_factory=list)
    draws: int = 0

    def step(self, what: str, *args: object) -> None:
        if what == "call":
            which, rows, hold = args
            self.draws += 1
            x = torch.sin(torch.arange(rows * 7.0, device=self.device) + self.draws).view(rows, 7)
            self.call(which, x, hold)
        elif what == "drop" and self.held:
            self.held.pop(args[0] % len(self.held))
        elif what == "write" and self.held:
            row = self.held[args[0] % len(self.held)]
            row.ours[2].mul_(-1)
            row.theirs[2].mul_(-1)
        elif what == "move":
            for models in (self.ours, self.theirs):
                setattr(models[args[0]], args[1], getattr(models[args[0]], args[1]) * 0.5)
        elif what == "feed back" and self.held:
            x = self.held[-1].ours[1]
            self.call(args[0], x, True, theirs=self.held[-1].theirs[1])
        elif what == "reset":
            airgraph.reset()

    def call(self, which: int, x: torch.Tensor, hold: bool, theirs: torch.Tensor | None = None) -> None:
        row = Held(self.compiled[which](x), self.theirs[which](x.clone() if theirs is None else theirs))
        row.check()
        torch.testing.assert_close(self.ours[which].cache, self.theirs[which].cache)
        if hold:
            self.held.append(row)


@torch.no_grad()
@pytest.mark.parametrize(
    "modes",
    [
        {},
        {"explicit": True},
        {"reuse_graph_pool_in_same_fx": False},
        {"clone_input": False},
        {"explicit": True, "clone_input": False},
        {"clone_output": [3]},
        {"force_recapture": True},
    ],
    ids=lambda modes: "-".join(modes) or "defaults",
)
def test_any_sequence_gives_what_eager_gives(device: str, modes: dict, request: pytest.FixtureRequest) -> None:
    options = {"capture_limit": 10_000, **{k: v for k, v in modes.items() if k != "explicit"}}
    if "explicit" in modes:
        options["use_graph_pool"] = airgraph.graph_pool_handle(device)
    models = [Model(factor, device) for factor in (1.0, -2.0)]
    compiled = [torch.compile(m, backend="airgraph", dynamic=True, fullgraph=True, options=options) for m in models]
    examples = 400 if request.config.getoption("--full-sweep") else 6

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(st.lists(_STEPS, max_size=25))
    @torch.no_grad()
    def check(steps: list[tuple]) -> None:
        airgraph.reset()
        theirs = [Model(model.factor, device) for model in models]
        for ours, other in zip(models, theirs, strict=True):
            ours.weight, ours.cache = other.weight.clone(), other.cache.clone()
        run = Run(device, models, compiled, theirs)
        for step in steps:
            run.step(*step)
        for row in run.held:
            row.check()
        assert airgraph.explain().to_dict()["counters"]["eager_calls"] == 0

    check()
