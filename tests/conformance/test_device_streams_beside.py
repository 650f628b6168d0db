"""The streams of a graph on the device, in the worst orders that their events allow."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from devices import simulator

_TESTS = str(Path(__file__).parents[1])
_FOUR_TENSORS = """
import torch, airgraph
from airgraph import ops, scope
torch.set_grad_enabled(False)

class FourTensors(torch.nn.Module):
    # As the documentation of Ascend's TorchAir shows it.
    def __init__(self):
        super().__init__()
        self.first, self.second = airgraph.Event("66"), airgraph.Event("77")
        self.multiplied, self.constant = airgraph.Event("multiplied"), torch.ones(64, 64, device="DEVICE")

    def forward(self, a, b, c, d):
        added = a + b
        self.first.record()
        with scope.stream("1"):
            self.first.wait()
            multiplied = added @ c
            ops.record_stream(added, "1")
            self.second.record()
        main = added @ d
        with scope.stream("2"):
            self.second.wait()
            together = multiplied + a
        self.constant.add_(1)
        return multiplied, main, together, self.constant * 2

model, twin = FourTensors(), FourTensors()
call = torch.compile(model, backend="airgraph", fullgraph=True)
for number in range(TIMES):
    given = [torch.full((64, 64), float(number % 7 + i), device="DEVICE") for i in range(4)]
    for ours, theirs in zip(call(*given), twin(*given), strict=True):
        assert torch.equal(ours.cpu(), theirs.cpu()), number
(row,) = airgraph.explain().to_dict()["graphs"]
assert (row["state"], row["streams"], row["replays"]) == ("captured", 3, TIMES), row
print("right")
"""

_RACE = """
import torch, airgraph
from airgraph import scope
torch.set_grad_enabled(False)

def program(x):
    made = (x + 1).exp().log()
    with scope.stream("side"):
        beside = made * 2
    return beside + 0, made

stale = []
for check in ("off", "fix"):
    torch._dynamo.reset()
    call = torch.compile(program, backend="airgraph", fullgraph=True, options={"stream_check": check})
    stale.append(0)
    for number in range(1, 20):
        x = torch.full((256,), float(number), device="DEVICE")
        stale[-1] += not torch.allclose(call(x)[0].cpu(), torch.full((256,), 2.0 * number + 2))
print("stale", *stale)
"""


def _output_of(device: str, program: str, schedule: str) -> str:
    served_by = simulator(device)
    if served_by is None:
        pytest.skip("needs a simulated device, whose streams run in any order that is asked for")
    settings = {**os.environ, f"{served_by.upper()}_SCHEDULE": schedule, "PYTHONWARNINGS": "ignore"}
    program = textwrap.dedent(program).replace("DEVICE", device)
    done = subprocess.run(
        [sys.executable, "-c", f"import {served_by}\n{served_by}.enable()\n{program}"],
        capture_output=True,
        text=True,
        env=settings,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("schedule", ["adversarial", "seed:1"])
def test_four_tensors_on_three_streams(device: str, schedule: str, request: pytest.FixtureRequest) -> None:
    """A thousand times in the worst order, on the device that the documentation writes it for."""
    is_long = schedule == "adversarial" and (device == "npu" or request.config.getoption("--full-sweep"))
    times = 1000 if is_long else 100
    assert "right" in _output_of(device, _FOUR_TENSORS.replace("TIMES", str(times)), schedule)


def test_a_race_shows_where_nobody_looks_and_is_mended_where_somebody_does(device: str) -> None:
    off, fixed = map(int, _output_of(device, _RACE, "adversarial").split("stale ")[1].split())
    assert off > 0 and fixed == 0


_RANDOM = """
import copy, random, sys, torch
from random_streams import copied_at_the_end, module_of
from airgraph.capture.callable import GraphedCallable
from airgraph.options import Options
from airgraph.passes.pipeline import run_passes
from airgraph.passes.stream_check import check_streams
from airgraph.program.inputs import InputPlan, InputRole
from airgraph.program.program import CaptureProgram
from airgraph.runtime.registry import runtime_for

torch.set_grad_enabled(False)
kinds, streams = ["add", "relu", "clone", "view", "record", "wait"], [None, "a", "b", "c"]
states = []
for seed in range(PROGRAMS):
    draw = random.Random(seed)
    steps = [
        (draw.choice(kinds), draw.choice(streams), draw.randrange(100), draw.randrange(100))
        for _ in range(draw.randrange(4, 20))
    ]
    gm = module_of(steps)
    copied_at_the_end(gm, draw.randrange(100), draw.randrange(100), "DEVICE")
    eager = copy.deepcopy(gm)
    options = Options(max_streams=draw.choice([None, 1, 2]), clone_input=draw.random() < 0.5)
    run_passes(gm, options, check=lambda checked: check_streams(checked, "fix", "random"))
    plans = tuple(InputPlan(number, InputRole.MUTATED, name) for number, name in enumerate("xy"))
    program = CaptureProgram.build(f"random {seed}", gm, plans, torch.device("DEVICE:0"))
    graphed = GraphedCallable(program, runtime_for("DEVICE"), options)
    given = [torch.randn(64, device="DEVICE") for _ in range(2)]
    expected = [each.clone() for each in given]
    for _ in range(4):
        made, right = graphed.call(*given), eager(*expected)
        for ours, theirs in zip([*made, *given], [*right, *expected], strict=True):
            assert torch.equal(ours.cpu(), theirs.cpu()), (seed, steps, str(gm.graph))
    states.append(bool(graphed.captures))
assert all(states)
print("right", len(states))
"""


@pytest.mark.parametrize(("schedule", "programs"), [("adversarial", 60), ("seed:3", 30)])
def test_random_programs_give_eagers_results(device: str, schedule: str, programs: int) -> None:
    program = f"import sys\nsys.path.insert(0, {_TESTS!r})\n" + _RANDOM.replace("PROGRAMS", str(programs))
    assert f"right {programs}" in _output_of(device, program, schedule)


_PRIORITIES = """
import torch, airgraph
from airgraph import scope
torch.set_grad_enabled(False)
made, stream = [], torch.DEVICE.Stream

class Noted(stream):
    def __new__(cls, device=None, priority=0, **kwargs):
        made.append(priority)
        return super().__new__(cls, device, priority, **kwargs)

torch.DEVICE.Stream = Noted

def program(x):
    with scope.stream("urgent", priority=-1):
        a = x + 1
    with scope.stream("any"):
        b = x + 2
    return a, b

a, b = torch.compile(program, backend="airgraph", fullgraph=True)(torch.ones(3, device="DEVICE"))
assert (a[0].item(), b[0].item()) == (2, 3)
print("priorities", *sorted(made))
"""


def test_priorities_reach_the_device(device: str) -> None:
    # One is of the stream that captures.
    assert "priorities -1 0 0" in _output_of(device, _PRIORITIES, "parallel")
