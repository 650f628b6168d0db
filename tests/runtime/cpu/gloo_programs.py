"""Runs a program with collectives on two ranks, by gloo."""

from __future__ import annotations

import textwrap
from pathlib import Path

from ranks import on_two_ranks

__all__ = ["run_on_two_ranks"]

_SETUP = """
import warnings, torch, airgraph
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
from airgraph import scope
from airgraph.runtime.cpu import beside
beside._LEAST_GAIN_NS, beside._cores = float("-inf"), lambda: 2
warnings.simplefilter("ignore")
torch.set_grad_enabled(False)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.group.WORLD
def compiled(function, **options):
    return torch.compile(function, backend="airgraph", fullgraph=True, options=options)
def rows():
    return airgraph.explain().to_dict()["graphs"]
"""
_END = """
dist.barrier()
dist.destroy_process_group()
print("rank is done")
"""


def run_on_two_ranks(folder: Path, program: str) -> None:
    """Run it after what such programs begin with; both ranks must end well."""
    script = folder / "program.py"
    script.write_text(_SETUP + textwrap.dedent(program) + _END)
    assert on_two_ranks(script).count("rank is done") == 2
