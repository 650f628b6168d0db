"""What is somebody else's: workspaces of libraries, and allocators other than PyTorch's own."""

import ctypes
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

import airgraph


@torch.no_grad()
def test_a_product_scribbles_over_its_workspace() -> None:
    """What the tests below rely on: a workspace that lies in memory of another spoils it."""
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()

    def blocks() -> set[tuple[int, int]]:
        return {
            (block["address"], block["size"])
            for segment in torch.cuda.memory_snapshot()
            for block in segment["blocks"]
            if block["state"] == "active_allocated"
        }

    x = torch.ones(16, 16, device="cuda")
    out = torch.empty_like(x)
    before = blocks()
    torch.mm(x, x, out=out)
    torch.cuda.synchronize()
    ((address, nbytes),) = blocks() - before
    assert nbytes >= 1 << 20
    words = (ctypes.c_uint64 * 1024)()
    copied = ctypes.CDLL("libcudart.so.13").cudaMemcpy(words, ctypes.c_void_p(address), ctypes.sizeof(words), 2)
    assert copied == 0
    assert len(set(words)) == 1 and hex(words[0]).startswith("0x7ff8dead")


@torch.no_grad()
@pytest.mark.parametrize("streams", ["one", "two"])
@pytest.mark.parametrize("pools", ["one", "two"])
def test_workspaces_belong_to_the_pool(pools: str, streams: str) -> None:
    shared = airgraph.graph_pool_handle("cuda")

    def make(weight: Tensor) -> object:
        pool = shared if pools == "one" else airgraph.graph_pool_handle("cuda")
        options = {"use_graph_pool": pool}
        return torch.compile(lambda x: (x @ weight).relu() @ weight, backend=airgraph.get_backend(options))

    weights = [torch.randn(16, 16, device="cuda") for _ in range(2)]
    calls = [make(weight) for weight in weights]
    x = torch.randn(4, 16, device="cuda")
    for call in calls:
        call(x)
    # As Inductor's graph trees do.
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    others = [torch.full((9 << 20,), 7.0, device="cuda") for _ in range(6)]
    called_on = [torch.cuda.Stream() for _ in range(2)] if streams == "two" else [torch.cuda.Stream()] * 2
    results = []
    for _ in range(3):
        for call, weight, stream in zip(calls, weights, called_on, strict=True):
            with torch.cuda.stream(stream):
                results.append((call(x), weight))
    torch.cuda.synchronize()
    for result, weight in results:
        torch.testing.assert_close(result, (x @ weight).relu() @ weight)
    assert all(bool((other == 7).all()) for other in others)


@torch.no_grad()
def test_workspaces_of_side_streams_belong_to_the_pool() -> None:
    """Graphs of two pools have the same side streams."""

    def make(weight: Tensor) -> object:
        def program(x: Tensor) -> Tensor:
            with airgraph.scope.stream("beside"):
                beside = x @ weight
            return x @ weight.t() + beside

        return torch.compile(program, backend="airgraph", fullgraph=True)

    weights = [torch.randn(16, 16, device="cuda") for _ in range(2)]
    first, second = (make(weight) for weight in weights)
    x = torch.randn(4, 16, device="cuda")
    first(x)
    second(x)
    del first
    torch._dynamo.reset_code_caches()
    gc.collect()
    torch.cuda.empty_cache()
    others = [torch.full((9 << 20,), 7.0, device="cuda") for _ in range(6)]
    for _ in range(3):
        torch.testing.assert_close(second(x), x @ weights[1].t() + x @ weights[1])
    assert all(bool((other == 7).all()) for other in others)


_WITH_ANOTHER_ALLOCATOR = """
import sys, warnings, torch, airgraph
torch.set_grad_enabled(False)
if sys.argv[2:]:
    torch.cuda.memory.change_current_allocator(torch.cuda.memory.CUDAPluggableAllocator(sys.argv[2], "take", "give"))
assert torch.cuda.get_allocator_backend() == sys.argv[1]
call = torch.compile(lambda x: (x * 2).relu() + 1, backend="airgraph", dynamic=False)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    print(*(call(torch.full((3,), float(number), device="cuda")).tolist() for number in range(3)))
print(*{str(warning.message) for warning in said if "airgraph" in str(warning.message)})
print({name: count for name, count in airgraph.explain().to_dict()["counters"].items() if count})
"""


_PLUGGED = """
#include <stddef.h>
#include <sys/types.h>
int cudaMalloc(void** at, size_t nbytes);
int cudaFree(void* at);
void* take(ssize_t nbytes, int device, void* stream) { void* at = 0; return cudaMalloc(&at, nbytes) ? 0 : at; }
void give(void* at, ssize_t nbytes, int device, void* stream) { cudaFree(at); }
"""


@pytest.mark.parametrize("allocator", ["cudaMallocAsync", "pluggable"])
def test_only_the_native_allocator_is_captured_with(allocator: str, tmp_path: Path) -> None:
    arguments, environment = [allocator], {}
    if allocator == "pluggable":
        source, library = tmp_path / "plugged.c", tmp_path / "plugged.so"
        source.write_text(_PLUGGED)
        subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True)
        arguments.append(str(library))
    else:
        environment["PYTORCH_CUDA_ALLOC_CONF"] = f"backend:{allocator}"
    done = subprocess.run(
        [sys.executable, "-c", f"import simcuda\nsimcuda.enable()\n{_WITH_ANOTHER_ALLOCATOR}", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results, said, counted = done.stdout.splitlines()
    assert results == "[1.0, 1.0, 1.0] [3.0, 3.0, 3.0] [5.0, 5.0, 5.0]"
    assert f"torch's allocator is {allocator!r}, and graphs are captured with 'native' only" in said
    assert counted == "{'eager_calls': 3}"
