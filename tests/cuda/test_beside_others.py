"""Graphs beside what else goes on in the process: captures, streams and threads of others, and collections."""

import warnings
from pathlib import Path

import torch
from process import run_command

import airgraph


@torch.no_grad()
def test_a_capture_on_another_device_than_the_current_one_is_seen() -> None:
    call = torch.compile(lambda x: (x * 2).relu() + 1, backend="airgraph")
    x = torch.ones(64, device="cuda:1")
    for _ in range(2):
        call(x)
    graph = torch.cuda.CUDAGraph()
    # The stream that torch captures on where it is given none is of the device of the first capture, for good.
    stream = torch.cuda.Stream(1)
    with torch.cuda.device(1), torch.cuda.graph(graph, stream=stream), torch.cuda.device(0):
        out = call(x)
    x.fill_(5)
    graph.replay()
    torch.cuda.synchronize(1)
    assert set(out.tolist()) == {11.0}


_GONE = """
import ctypes
import torch

torch.set_grad_enabled(False)
runtime = ctypes.CDLL("libcudart.so.13")
call = torch.compile(lambda x: x + 1, backend="airgraph")
x = torch.ones(1000, device="cuda")
call(x)
handle = ctypes.c_void_p()
assert runtime.cudaStreamCreateWithFlags(ctypes.byref(handle), 1) == 0
stream = torch.cuda.ExternalStream(handle.value)
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    held = call(x)
stream.synchronize()
assert runtime.cudaStreamDestroy(handle) == 0
for _ in range(3):
    print(set(call(x * 3).tolist()))
print(set(held.tolist()))
"""


def test_a_stream_of_somebody_else_may_be_gone_at_the_next_call(tmp_path: Path) -> None:
    """In a process of its own: PyTorch's allocator goes on asking for a stream that it has seen."""
    script = tmp_path / "program.py"
    script.write_text(_GONE)
    done = run_command(str(script), device="cuda")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["{4.0}"] * 3 + ["{2.0}"]


@torch.no_grad()
def test_a_graph_without_work_is_no_matter_for_a_warning() -> None:
    x = torch.arange(12.0, device="cuda").reshape(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        views = torch.compile(lambda x: (x.t(), x.view(-1)[:2], 3), backend="airgraph")
        memory = torch.compile(torch.empty_like, backend="airgraph")
        for _ in range(2):
            seen, first, number = views(x)
            assert (seen.tolist(), first.tolist(), number) == (x.t().tolist(), [0.0, 1.0], 3)
            assert memory(x).shape == x.shape
    assert airgraph.explain().to_dict()["counters"]["captures"] == 2


@torch.no_grad()
def test_a_capture_that_is_left_before_any_work_has_one_warning() -> None:
    @torch.library.custom_op("airgraph_cuda::not_in_captures", mutates_args=())
    def not_in_captures(x: torch.Tensor) -> torch.Tensor:
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("not in a capture")
        return x + 1

    not_in_captures.register_fake(torch.empty_like)
    call = torch.compile(not_in_captures, backend="airgraph")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        assert call(torch.ones(3, device="cuda")).tolist() == [2.0] * 3
    (message,) = [str(each.message) for each in said if each.category is UserWarning]
    assert "not in a capture" in message


_TWO_THREADS = """
import os
import threading
import torch
from airgraph.capture.captures import Captures

torch.set_grad_enabled(False)
inner = torch.compile(lambda x: x * 2, backend="airgraph", dynamic=True)
within, begun = threading.Event(), threading.Event()
waits = []

@torch.library.custom_op("airgraph_cuda::calls_inner", mutates_args=())
def calls_inner(x: torch.Tensor) -> torch.Tensor:
    if waits and x.numel() == 3:
        within.set()
        assert begun.wait(10)
    return inner(x).clone()

calls_inner.register_fake(torch.empty_like)
outer = torch.compile(lambda x: calls_inner(x) + 1, backend="airgraph")
for count in (3, 5, 3):
    inner(torch.ones(count, device="cuda"))
waits.append(True)

def first():
    torch.set_grad_enabled(False)
    print(outer(torch.ones(3, device="cuda")).tolist(), flush=True)

capture = Captures.capture

def noted(self, *args, **kwargs):
    # Its thread has the pool by now, and asks for the device next.
    if waits and threading.current_thread() is threads[1]:
        begun.set()
    return capture(self, *args, **kwargs)

Captures.capture = noted

def second():
    torch.set_grad_enabled(False)
    within.wait()
    print(inner(torch.ones(9, device="cuda")).tolist(), flush=True)

threads = [threading.Thread(target=run, daemon=True) for run in (first, second)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(30)
# A daemon that waits would keep the process.
os._exit(sum(thread.is_alive() for thread in threads))
"""


def test_an_operator_that_calls_a_compiled_function_while_another_thread_captures_that(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(_TWO_THREADS)
    done = run_command(str(script), device="cuda")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [str([2.0] * 9), str([3.0] * 3)]


_COLLECTED = """
import gc
import sys
import torch
import airgraph

torch.set_grad_enabled(False)
x = torch.ones(4, device="cuda")

def model(x):
    return x * 2

def left_as_garbage():
    call = airgraph.inference.cache_compile(model, cache_dir=sys.argv[1])
    for _ in range(2):
        call(x)
    box = {"call": call}
    box["self"] = box

def user(x):
    y = x + 1
    gc.collect()
    return y * 2

call = torch.compile(user, backend="airgraph")
for _ in range(2):
    call(x)
gc.collect()
alone = torch.cuda.memory_reserved()
for _ in range(3):
    gc.disable()
    left_as_garbage()
    print(call(x).tolist())
    gc.enable()
    gc.collect()
    torch.cuda.empty_cache()
print(torch.cuda.memory_reserved() <= alone)
"""


def test_a_graph_that_is_collected_amid_a_compiled_function(tmp_path: Path) -> None:
    """Dynamo must not trace what gives its memory back: that would be given back twice."""
    script = tmp_path / "program.py"
    script.write_text(_COLLECTED)
    done = run_command(str(script), str(tmp_path), device="cuda")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str([4.0] * 4)] * 3 + ["True"]
