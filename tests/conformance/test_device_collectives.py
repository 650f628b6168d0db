"""Collectives in a graph: captured once and replayed, on a stream of their own too.

By PyTorch's fake process group, whose collectives do nothing: NCCL and HCCL need cards. What is shown is the graph
around them. Real ones, by gloo, are in tests/runtime/cpu.
"""

from pathlib import Path

from process import start_command

_PROGRAM = """
import sys
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch.testing._internal.distributed.fake_pg import FakeStore

import airgraph

torch.set_grad_enabled(False)
device = sys.argv[1]
dist.init_process_group(f"{device}:fake", rank=0, world_size=2, store=FakeStore())


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


def test_a_collective_is_replayed_where_the_program_puts_it(device: str, tmp_path: Path) -> None:
    """On the caller's stream, and on one of its own."""
    script = tmp_path / "program.py"
    script.write_text(_PROGRAM)
    worst = {"SIMCUDA_SCHEDULE": "adversarial", "SIMCANN_SCHEDULE": "adversarial"}
    ran = start_command(str(script), device, device=device, **worst)
    assert ran.returncode == 0, ran.stderr
    # torch_npu says something of its own before.
    assert ran.stdout.splitlines()[-2:] == ["default captured 1 5", "comm captured 2 5"]
