"""What other tests rely on: the simulated card spoils what is freed, and has the limits that it is given."""

import subprocess
import sys
from pathlib import Path

import torch
from process import run_command
from ranks import on_two_ranks

_LIMITED = """
import simcuda
simcuda.enable()
import torch

assert torch.cuda.device_count() == 3
assert torch.cuda.get_device_capability(2) == (8, 0)
# What is freed is spoiled in the order of its own device's stream.
assert all(torch.ones(5, device="cuda:2").sum().item() == 5 for _ in range(1000))
try:
    torch.empty(80 << 20, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError as error:
    print("refused", "64.00 MiB" in str(error))
made = []
try:
    while len(made) < 1000:
        made.append(torch.cuda.ExternalStream(torch.cuda.Stream(priority=-(len(made) % 2)).cuda_stream))
except RuntimeError as error:
    print("no stream left" in str(error))
"""


_FAILING = """
import torch
from torch.cuda import CUDAGraph, graph

x = torch.zeros(4, device="cuda")
for name in ("no begin", "no instance", "captured"):
    try:
        g = CUDAGraph()
        with graph(g):
            y = x + 1
        g.replay()
        print(name, y.tolist())
    except RuntimeError:
        print(name)
"""


def test_calls_fail_that_the_environment_says(tmp_path: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text(_FAILING)
    failures = "cudaGraphInstantiateWithFlags:0,cudaStreamBeginCapture:0"
    ran = run_command(str(script), device="cuda", SIMCUDA_FAIL=failures)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.splitlines() == ["no begin", "no instance", "captured [1.0, 1.0, 1.0, 1.0]"]


def test_memory_that_is_freed_holds_no_numbers() -> None:
    for _ in range(5):
        x = torch.ones(1 << 20, device="cuda")
        where = x.data_ptr()
        del x
        again = torch.empty(1 << 20, device="cuda")
        assert again.data_ptr() == where
        assert bool(again.isnan().all())


def test_limits_are_those_of_the_environment(tmp_path: Path) -> None:
    script = tmp_path / "limited.py"
    script.write_text(_LIMITED)
    settings = {"SIMCUDA_DEVICES": "3", "SIMCUDA_MEMORY": "64MiB", "SIMCUDA_CAPABILITY": "8.0", "SIMCUDA_STREAMS": "40"}
    ran = run_command(str(script), device="cuda", **settings)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.split() == ["refused", "True", "True"]


_FILLED = """
import torch
print((torch.full((1000,), 3.0, device="cuda").cpu() == 3).any().item())
"""


def test_kernels_off_runs_nothing(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(_FILLED)
    command = [sys.executable, "-m", "simcuda", "--null", str(script)]
    off = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    on = run_command(str(script), device="cuda")
    assert (on.stdout.split()[-1], off.stdout.split()[-1]) == ("True", "False"), on.stderr


def test_a_module_is_run_as_python_runs_it() -> None:
    ran = run_command("-m", "simcuda", "-m", "json.tool", "--help", device="cuda")
    assert ran.returncode == 0 and "json" in ran.stdout, ran.stderr


def test_memory_that_a_graph_frees_is_spoiled_in_each_replay() -> None:
    """Who reads it later in the graph reads no numbers."""
    x, out = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = x * 2
        freed = torch.empty(0, device="cuda").set_(made.untyped_storage(), 0, (64,), (1,))
        address = made.data_ptr()
        del made, freed
        other = torch.empty(64, device="cuda")
        assert other.data_ptr() == address
        out.copy_(other)
    for _ in range(2):
        graph.replay()
        torch.cuda.synchronize()
        assert out.isnan().all()


_WRONG = """
import os, sys, warnings
import torch
import torch.distributed as dist

warnings.simplefilter("ignore")
rank, wrong = int(os.environ["RANK"]), sys.argv[1]
torch.cuda.set_device(0 if wrong == "card" else rank)
dist.init_process_group("nccl")
try:
    dist.all_reduce(torch.ones(8 if rank and wrong == "size" else 4, device="cuda"))
    torch.cuda.synchronize()
except RuntimeError as error:
    print(error)
"""


def test_collectives_that_no_card_would_run_are_refused(tmp_path: Path) -> None:
    """Two ranks on one card, and ranks whose collectives are not alike."""
    script = tmp_path / "wrong.py"
    script.write_text(_WRONG)
    said = on_two_ranks(script, "card", device="cuda")
    assert said.count("Duplicate GPU detected: ranks 0 and 1 both use device 0") == 2, said
    said = on_two_ranks(script, "size", device="cuda")
    assert "rank 0 is in all_reduce of 4 float32, sum and expects 16 bytes" in said, said
    assert "rank 1 is in all_reduce of 8 float32, sum and sends 32" in said, said
