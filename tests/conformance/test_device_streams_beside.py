"""The streams of a graph on the device, in the orders that their events allow: the worst ones, and any.

In which order a simulated device runs its streams is a setting of the process. `make test` runs this file with that
which is worst for whoever forgot an event, and here once more with one that is drawn.
"""

import copy
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from devices import simulator
from doors import both_doors, through
from four_tensors import FourTensors
from process import run_command
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
from airgraph.runtime.accelerator import capture
from airgraph.runtime.accelerator import streams as accelerator
from airgraph.runtime.registry import runtime_for
from airgraph.torch_internals.streams import priority_of_stream

_Program = Callable[[Tensor], tuple[Tensor, Tensor]]

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
    # Whole numbers: every device has the same results, and the CPU has them soonest.
    model, twin = FourTensors(device, 64), FourTensors("cpu", 64)
    call = torch.compile(model, backend="airgraph", fullgraph=True)
    for number in range(times):
        given = [torch.full((64, 64), float(number % 7 + i)) for i in range(4)]
        for ours, theirs in zip(call(*(each.to(device) for each in given)), twin(*given), strict=True):
            assert torch.equal(ours.cpu(), theirs), number
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


def _scopes(device: str) -> _Program:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        with scope.stream("urgent", priority=-1):
            a = x + 1
        with scope.stream("any"):
            b = x + 2
        return a, b

    return program


def _two_streams(urgent: torch.Stream, usual: torch.Stream) -> _Program:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        with urgent:
            a = x + 1
        with usual:
            b = x + 2
        return a, b

    return program


def _of_the_device(device: str) -> _Program:
    module = torch.get_device_module(device)
    return _two_streams(module.Stream(priority=-1), module.Stream())


def _of_any_device(device: str) -> _Program:
    return _two_streams(torch.Stream(device, priority=-1), torch.Stream(device))


def _made_within(device: str) -> _Program:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        return _two_streams(torch.Stream(priority=-1), torch.Stream())(x)

    return program


@torch.no_grad()
@both_doors
@pytest.mark.parametrize("make", [_scopes, _of_the_device, _of_any_device, _made_within])
def test_priorities_reach_the_device(
    make: Callable[[str], _Program], door: str, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device == "cpu":
        pytest.skip("threads of the engine have no priorities")
    taken: list[int] = []

    class Noted(accelerator.CaptureStreams):
        @classmethod
        def of(cls, *given: Any) -> Any:
            streams = super().of(*given)
            taken.extend(map(priority_of_stream, streams.taken))
            return streams

    monkeypatch.setattr(capture, "CaptureStreams", Noted)
    program = make(device)
    # The second time the cached graph is read from its file.
    for _ in range(2 if door == "cached" else 1):
        airgraph.reset()
        call = through(door, program, tmp_path, strict=True)
        a, b = call(torch.ones(3, device=device))
        assert (a[0].item(), b[0].item()) == (2, 3)
        (row,) = airgraph.explain().to_dict()["graphs"]
        assert row["state"] == "captured" and taken == [-1, 0], (row, taken)
        taken.clear()


def test_in_an_order_that_is_drawn(device: str) -> None:
    served_by = simulator(device)
    if served_by is None or _schedule(device) != "adversarial":
        pytest.skip("is started where a simulated device runs its streams in the worst order")
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "--device", device]
    done = run_command(*command, device=device, **{f"{served_by.upper()}_SCHEDULE": "seed:3"})
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
