"""The streams of a graph on the device, in the orders that their events allow: the worst ones, and any.

In which order a simulated device runs its streams is a setting of the process. `make test` runs this file with that
which is worst for whoever forgot an event, and here once more with one that is drawn.
"""

import copy
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from devices import simulator
from four_tensors import FourTensors
from random_streams import copied_at_the_end, module_of
from torch import Tensor

import airgraph
from airgraph import scope
from airgraph.capture.callable import GraphedCallable
from airgraph.options import Options
from airgraph.passes.pipeline import run_passes
from airgraph.passes.stream_check import check_streams
from airgraph.program.inputs import InputPlan, InputRole
from airgraph.program.program import CaptureProgram
from airgraph.runtime.registry import runtime_for

_KINDS = ("add", "relu", "clone", "view", "record", "wait", "cat", "to its dtype", "mul 1")


def _schedule(device: str) -> str:
    """In which order the device runs its streams; empty where nobody has said it, or it cannot be said."""
    return os.environ.get(f"{(simulator(device) or 'no simulator').upper()}_SCHEDULE", "")


@torch.no_grad()
def test_four_tensors_on_three_streams(device: str, request: pytest.FixtureRequest) -> None:
    """A thousand times in the worst order, on the device that the documentation writes it for."""
    if device == "cpu":
        pytest.skip("tests/runtime/cpu/test_streams_beside.py does it on the CPU, with threads for all streams")
    is_long = device == "npu" and _schedule(device) == "adversarial"
    times = 1000 if is_long or request.config.getoption("--full-sweep") else 100
    model, twin = FourTensors(device, 64), FourTensors(device, 64)
    call = torch.compile(model, backend="airgraph", fullgraph=True)
    for number in range(times):
        given = [torch.full((64, 64), float(number % 7 + i), device=device) for i in range(4)]
        for ours, theirs in zip(call(*given), twin(*given), strict=True):
            assert torch.equal(ours.cpu(), theirs.cpu()), number
    (row,) = airgraph.explain().to_dict()["graphs"]
    assert (row["state"], row["streams"], row["replays"]) == ("captured", 3, times)


@torch.no_grad()
def test_a_race_shows_where_nobody_looks_and_is_mended_where_somebody_does(device: str) -> None:
    if _schedule(device) != "adversarial":
        pytest.skip("needs a simulated device that runs its streams in the worst order")

    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        made = (x + 1).exp().log()
        with scope.stream("side"):
            beside = made * 2
        return beside + 0, made

    stale = {"off": 0, "fix": 0}
    for check in stale:
        torch._dynamo.reset()
        call = torch.compile(program, backend="airgraph", fullgraph=True, options={"stream_check": check})
        for number in range(1, 20):
            x = torch.full((256,), float(number), device=device)
            stale[check] += not torch.allclose(call(x)[0].cpu(), torch.full((256,), 2.0 * number + 2))
    assert stale["off"] > 0 and stale["fix"] == 0


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:airgraph")
def test_random_programs_give_eagers_results(device: str) -> None:
    if device == "cpu":
        pytest.skip("those of tests/runtime/cpu/test_streams_beside.py run on the CPU")
    for seed in range(60 if _schedule(device) == "adversarial" else 30):
        draw = random.Random(seed)
        steps = [
            (draw.choice(_KINDS), draw.choice([None, "a", "b", "c"]), draw.randrange(100), draw.randrange(100))
            for _ in range(draw.randrange(4, 20))
        ]
        gm = module_of(steps)
        copied_at_the_end(gm, draw.randrange(100), draw.randrange(100), device)
        eager = copy.deepcopy(gm)
        options = Options(max_streams=draw.choice([None, 1, 2]), clone_input=draw.random() < 0.5)
        run_passes(gm, options, check=lambda checked: check_streams(checked, "fix", "random"))
        plans = tuple(InputPlan(number, InputRole.MUTATED, name) for number, name in enumerate("xy"))
        program = CaptureProgram.build(f"random {seed}", gm, plans, torch.device(f"{device}:0"))
        graphed = GraphedCallable(program, runtime_for(device), options)
        given = [torch.randn(64, device=device) for _ in range(2)]
        expected = [each.clone() for each in given]
        for _ in range(4):
            made, right = graphed.call(*given), eager(*expected)
            for ours, theirs in zip([*made, *given], [*right, *expected], strict=True):
                assert torch.equal(ours.cpu(), theirs.cpu()), (seed, steps, str(gm.graph))
        assert graphed.captures


@torch.no_grad()
def test_priorities_reach_the_device(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if device == "cpu":
        pytest.skip("threads of the engine have no priorities")
    module = getattr(torch, device)
    made: list[int] = []

    class Noted(module.Stream):
        def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Any:
            made.append(priority)
            return super().__new__(cls, device, priority, **kwargs)

    monkeypatch.setattr(module, "Stream", Noted)

    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        with scope.stream("urgent", priority=-1):
            a = x + 1
        with scope.stream("any"):
            b = x + 2
        return a, b

    a, b = torch.compile(program, backend="airgraph", fullgraph=True)(torch.ones(3, device=device))
    assert (a[0].item(), b[0].item()) == (2, 3)
    # Streams that are there from other graphs are taken again.
    assert -1 in made and set(made) <= {-1, 0}


def test_in_an_order_that_is_drawn(device: str) -> None:
    served_by = simulator(device)
    if served_by is None or _schedule(device) != "adversarial":
        pytest.skip("is started where a simulated device runs its streams in the worst order")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", Path(__file__), "--device", device],
        env={**os.environ, f"{served_by.upper()}_SCHEDULE": "seed:3"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
