"""Collectives in a graph: captured once and replayed, on a stream of their own too.

By PyTorch's fake process group, whose collectives do nothing: NCCL and HCCL need cards. What is shown is the graph
around them. Real ones, by gloo, are in tests/runtime/cpu.
"""

from pathlib import Path

import pytest
from process import run_command

_BEGIN = """
import sys
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch.testing._internal.distributed.fake_pg import FakeStore

import airgraph

torch.set_grad_enabled(False)
device = sys.argv[1]
dist.init_process_group(f"{device}:fake", rank=0, world_size=2, store=FakeStore())
"""

_REPLAYED = """
for tag in ("default", "comm"):

    def program(x, w):
        made = (x * 2).exp().log()
        with airgraph.scope.stream(tag):
            reduced = collectives.all_reduce(made, "sum", dist.group.WORLD)
        return reduced + x @ w

    call = torch.compile(program, backend="airgraph", fullgraph=True)
    for number in range(1, 6):
        x = torch.full((4, 4), float(number), device=device)
        torch.testing.assert_close(call(x, x), x * 2 + x @ x)
    row = airgraph.explain().to_dict()["graphs"][-1]
    print(tag, row["state"], row["streams"], row["replays"])
"""


# A rank that runs one more than the others would wait for ever, or take their next one's numbers.
_COUNTED = """
count = torch.zeros(1, device=device)
library = torch.library.Library("_c10d_functional", "IMPL")

def counted(x, op, group):
    # Ranks agree about the capture by the least of what each says.
    if op == "min":
        return x.clone()
    count.add_(1)
    return x * 2

for name in ("all_reduce", "all_reduce_"):
    library.impl(name, counted, {"npu": "PrivateUse1"}.get(device, device.upper()), allow_override=True)

def program(x):
    return collectives.all_reduce(x.exp().log(), "sum", dist.group.WORLD) + 1

when, options = sys.argv[2], {"memory_budget": 1} if sys.argv[3:] else {}
call = torch.compile(program, backend="airgraph", fullgraph=True, options=options)
x = torch.ones(4, device=device)
if when == "warmed":
    airgraph.warmup(call, [(x,)])
before = int(count.item())
for number in range(1, 6):
    torch.testing.assert_close(call(x * number), x * 2 * number + 1)
print(before, int(count.item()) - before, airgraph.explain().to_dict()["graphs"][-1]["state"])
"""


def test_a_collective_is_replayed_where_the_program_puts_it(device: str, tmp_path: Path) -> None:
    """On the caller's stream, and on one of its own."""
    script = tmp_path / "program.py"
    script.write_text(_BEGIN + _REPLAYED)
    worst = {"SIMCUDA_SCHEDULE": "adversarial", "SIMCANN_SCHEDULE": "adversarial"}
    ran = run_command(str(script), device, device=device, **worst)
    assert ran.returncode == 0, ran.stderr
    # torch_npu says something of its own before.
    assert ran.stdout.splitlines()[-2:] == ["default captured 1 5", "comm captured 2 5"]


@pytest.mark.parametrize(
    ("when", "state"), [("at_first_call", "captured"), ("warmed", "captured"), ("warmed", "skipped")]
)
def test_a_rank_runs_each_collective_once_a_call(device: str, when: str, state: str, tmp_path: Path) -> None:
    """And once more where a warm-up has to run the program before it is captured, as on CUDA: on every rank alike, also
    on one that has no memory for a graph."""
    if device == "cpu":
        pytest.skip("the engine has collectives of its own there")
    script = tmp_path / "program.py"
    script.write_text(_BEGIN + _COUNTED)
    ran = run_command(str(script), device, when, *["hindered"] * (state == "skipped"), device=device)
    assert ran.returncode == 0, ran.stderr
    runs_before = int(device == "cuda" and when == "warmed")
    assert ran.stdout.splitlines()[-1] == f"{runs_before} 5 {state}"
