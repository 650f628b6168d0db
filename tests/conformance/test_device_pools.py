"""Graphs of a pool share its memory, take turns in it, and a pool that cannot serve is refused."""

import gc
import itertools
import random
import threading
from pathlib import Path

import pytest
import torch
from devices import simulator
from process import run_command
from reports import report
from torch import nn

import airgraph
from airgraph.errors import OptionError, ReplayError
from airgraph.memory.pool import MemoryPool

_MODES = [
    {"reuse_graph_pool_in_same_fx": reuse, "clone_input": clone, "clone_output": copies}
    for reuse, clone, copies in itertools.product((True, False), (True, False), (False, True))
]


def _two_heads(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    hidden = (x * 2).relu() + 1
    both = torch.cat([hidden, hidden * 3])
    return both[: x.shape[0]], both[x.shape[0] :], hidden.sum(-1)


@torch.no_grad()
@pytest.mark.parametrize("explicit", [False, True], ids=["", "explicit"])
@pytest.mark.parametrize("modes", _MODES, ids=lambda modes: "-".join(k for k, v in modes.items() if v) or "none")
@pytest.mark.sampled
def test_every_mode_alone_and_together(device: str, modes: dict[str, bool], explicit: bool) -> None:
    options = {**modes, **({"use_graph_pool": airgraph.graph_pool_handle(device)} if explicit else {})}
    compiled = torch.compile(_two_heads, backend="airgraph", dynamic=True, fullgraph=True, options=options)
    inputs = {rows: torch.randn(rows, 8, device=device) for rows in (2, 5, 3)}
    held = []
    for rows in (2, 5, 2, 3, 5, 5, 2):
        held.append((compiled(inputs[rows]), _two_heads(inputs[rows])))
        inputs[rows].add_(1)
    for ours, theirs in held:
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)
    found = report()
    assert found["counters"]["captures"] == 3 and found["counters"]["eager_calls"] == 0
    assert len(found["pools"]) == (1 if explicit or modes["reuse_graph_pool_in_same_fx"] else 3)
    copied = {row["copied_nbytes"] for row in found["graphs"]}
    assert copied == ({64, 96, 160} if modes["clone_input"] else {0})


@torch.no_grad()
@pytest.mark.parametrize("order", ["ascending", "descending", pytest.param("random", marks=pytest.mark.sweep)])
def test_a_pool_of_many_shapes_takes_what_the_largest_takes(device: str, order: str) -> None:
    sizes = [1, 2, 4, 8, 16, 32]
    if order == "descending":
        sizes.reverse()
    elif order == "random":
        random.Random(3).shuffle(sizes)
    model = nn.Sequential(nn.Linear(64, 2048), nn.GELU(), nn.Linear(2048, 2048), nn.GELU()).to(device).eval()

    def total(reuse: bool, batches: list[int]) -> int:
        torch._dynamo.reset()
        airgraph.reset()
        compiled = torch.compile(
            model, backend="airgraph", dynamic=True, fullgraph=True, options={"reuse_graph_pool_in_same_fx": reuse}
        )
        for batch in batches:
            x = torch.randn(batch * 60, 64, device=device)
            torch.testing.assert_close(compiled(x), model(x))
        assert len(report()["pools"]) == (1 if reuse else len(batches))
        return sum(pool["nbytes"] for pool in report()["pools"])

    largest, shared, unshared = total(True, [32]), total(True, sizes), total(False, sizes)
    if device == "cpu":
        assert shared <= 1.05 * largest
        assert unshared > 1.8 * largest
        return
    # Captured first, the largest leaves room for all others; in other orders an allocator keeps segments that became
    # too small.
    assert shared <= (1.1 if order == "descending" else 2.1) * largest
    assert shared < unshared


@torch.no_grad()
def test_one_pool_for_two_models(device: str, pool: MemoryPool) -> None:
    first = nn.Sequential(nn.Linear(16, 512), nn.ReLU(), nn.Linear(512, 8)).to(device).eval()
    second = nn.Sequential(nn.Linear(16, 512), nn.Tanh(), nn.Linear(512, 8)).to(device).eval()
    options = {"use_graph_pool": pool}
    compiled = [torch.compile(model, backend="airgraph", options=options) for model in (first, second)]
    held = []
    for _ in range(3):
        for ours, model in zip(compiled, (first, second), strict=True):
            x = torch.randn(32, 16, device=device)
            held.append((ours(x), model(x)))
    for a, b in held:
        torch.testing.assert_close(a, b)
    found = report()
    assert {row["pool"] for row in found["graphs"]} == {pool.id}
    (row,) = found["pools"]
    assert row["graphs"] == 2 and row["id"] == pool.id and row["device"].startswith(device)
    if device == "cpu":
        single = max(graph["nbytes"] for graph in found["graphs"])
        assert pool.nbytes <= 1.05 * single
        assert row["saved_nbytes"] == sum(graph["nbytes"] for graph in found["graphs"]) - pool.nbytes
    assert row["nbytes"] == row["arena_nbytes"] + row["inputs_nbytes"] + row["outputs_nbytes"]
    del ours, compiled
    torch._dynamo.reset()
    airgraph.reset()
    gc.collect()
    assert pool.graphs == 0 and pool.nbytes == 0


@torch.no_grad()
def test_a_pool_that_cannot_serve_is_refused(device: str) -> None:
    def compiled(pool: object) -> object:
        torch._dynamo.reset()
        return torch.compile(lambda x: x + 1, backend=airgraph.get_backend({"use_graph_pool": pool}))(x)

    x = torch.ones(2, device=device)
    with pytest.raises(OptionError, match=r"expected a pool from airgraph.graph_pool_handle.*got 'mine' of type str"):
        compiled("mine")
    closed = airgraph.graph_pool_handle(device)
    closed.close()
    with pytest.raises(OptionError, match="is closed"):
        compiled(closed)
    other = MemoryPool(torch.device("meta"))
    with pytest.raises(OptionError, match=rf"runs on {device}.*got a pool of meta"):
        compiled(other)
    assert compiled(airgraph.graph_pool_handle(device)).tolist() == [2.0, 2.0]


@torch.no_grad()
def test_a_pool_closed_between_two_shapes_takes_no_new_graph(device: str, pool: MemoryPool) -> None:
    compiled = torch.compile(lambda x: x + 1, backend="airgraph", dynamic=True, options={"use_graph_pool": pool})
    x = torch.ones(2, device=device)
    compiled(x)
    pool.close()
    assert compiled(x).tolist() == [2.0, 2.0]
    with pytest.raises(OptionError, match="closed"):
        compiled(torch.ones(3, device=device))
    assert compiled(x).tolist() == [2.0, 2.0]


@torch.no_grad()
def test_a_pool_of_the_devices_own_kind(device: str) -> None:
    if device == "cpu":
        pytest.skip("the CPU has no other kind")
    handle = getattr(torch, device).graph_pool_handle()
    compiled = [
        torch.compile(lambda x, k=k: x + k, backend="airgraph", options={"use_graph_pool": handle}) for k in (1, 2)
    ]
    x = torch.ones(2, device=device)
    assert [each(x).tolist() for each in compiled] == [[2.0, 2.0], [3.0, 3.0]]
    assert len(report()["pools"]) == 1


@torch.no_grad()
def test_a_capture_takes_the_peak_and_not_the_sum(device: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        for i in range(20):
            x = x * 1.01 + i
        return x

    x = torch.ones(1 << 20, device=device)
    compiled = torch.compile(program, backend="airgraph", options={"inplace_pass": False})
    torch.testing.assert_close(compiled(x), program(x))
    # Two buffers at a time, the input's and the output; an allocator's segments are of 20 MiB.
    assert report()["pools"][0]["nbytes"] <= (16 << 20 if device == "cpu" else 28 << 20)


@torch.no_grad()
def test_input_buffers_that_were_replaced_are_counted_as_long_as_they_live(device: str) -> None:
    compiled = torch.compile(lambda x: x.sum(-1), backend="airgraph", dynamic=True)
    sizes = (1000, 3000, 9000)
    for rows in sizes:
        compiled(torch.ones(rows, 7, device=device))
    largest, every = 9000 * 28, sum(sizes) * 28
    assert report()["pools"][0]["inputs_nbytes"] == (largest if device == "cpu" else every)


@torch.no_grad()
def test_threads_take_turns_in_a_pool(device: str, pool: MemoryPool) -> None:
    def make(factor: int):
        def program(x: torch.Tensor) -> torch.Tensor:
            for _ in range(10):
                x = (x * factor).relu() / factor + 1
            return x

        return program

    programs = [make(2), make(3)]
    compiled = [torch.compile(p, backend="airgraph", options={"use_graph_pool": pool}) for p in programs]
    inputs = [torch.randn(64, 64, device=device).abs() for _ in programs]
    expected = [program(x).cpu() for program, x in zip(programs, inputs, strict=True)]
    for run, x in zip(compiled, inputs, strict=True):
        run(x)
    wrong: list[object] = []

    def work(which: int) -> None:
        with torch.no_grad():
            for _ in range(50):
                if not torch.allclose(compiled[which](inputs[which]).cpu(), expected[which]):
                    wrong.append(which)

    threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@torch.no_grad()
def test_a_neighbour_does_not_run_within_a_replay(device: str, pool: MemoryPool) -> None:
    if device != "cpu":
        pytest.skip("no Python runs within a replay on an accelerator")
    inner: list = []

    @torch.library.custom_op("airgraph_memory::call_neighbour", mutates_args=())
    def call_neighbour(x: torch.Tensor) -> torch.Tensor:
        return inner[0](x) if inner else x.clone()

    call_neighbour.register_fake(torch.empty_like)
    options = {"use_graph_pool": pool}
    outer = torch.compile(lambda x: call_neighbour(x) + 1, backend="airgraph", options=options)
    neighbour = torch.compile(lambda x: x * 2, backend="airgraph", options=options)
    x = torch.ones(3)
    outer(x), neighbour(x)
    inner.append(neighbour)
    with pytest.raises(ReplayError, match="in the same memory pool"):
        outer(x)
    inner.clear()
    assert outer(x).tolist() == [2.0] * 3


@torch.no_grad()
def test_graphs_without_outputs_are_in_order_on_several_streams(device: str, pool: MemoryPool) -> None:
    if device == "cpu":
        pytest.skip("work on the CPU runs in the calling thread")
    module = getattr(torch, device)
    options = {"use_graph_pool": pool}
    store = torch.compile(lambda c, x: c.copy_((x * 2).exp().log()), backend="airgraph", options=options)
    other = torch.compile(lambda x: (x * 3).exp().log() + 1, backend="airgraph", options=options)
    streams = [module.Stream(), module.Stream()]
    cache, x = torch.zeros(4096, device=device), torch.full((4096,), 0.5, device=device)
    store(cache, x)
    other(x)
    module.synchronize()
    for i in range(20):
        value = torch.full((4096,), i / 20, device=device)
        module.synchronize()
        with module.stream(streams[0]):
            store(cache, value)
        with module.stream(streams[1]):
            out = other(x) * 1.0
        module.synchronize()
        torch.testing.assert_close(cache, value * 2)
        torch.testing.assert_close(out, x * 3 + 1)


@torch.no_grad()
def test_graphs_that_are_gone_are_reported_as_dropped(device: str) -> None:
    compiled = torch.compile(lambda x: x * 2, backend="airgraph")
    compiled(torch.ones(3, device=device))
    del compiled
    torch._dynamo.reset()
    gc.collect()
    found = report()
    assert [row["state"] for row in found["graphs"]] == ["dropped"] and found["pools"] == []


_ALMOST_FULL = """
import sys, torch, airgraph
torch.set_grad_enabled(False)
device, mib = sys.argv[1], 1 << 20
module = torch.get_device_module(device)
module.set_per_process_memory_fraction(220 * mib / module.mem_get_info()[1])
# 60 of 220 MiB in blocks that are too small for the program, which needs 60 beside its argument and that one's copy.
cached = [torch.empty(12 * mib, dtype=torch.uint8, device=device) for _ in range(5)]
del cached
x = torch.ones(60 * mib // 4, device=device)
call = torch.compile(lambda x: (x * 2).sum(), backend="airgraph", dynamic=False)
for _ in range(3):
    assert call(x).item() == 2 * x.numel()
print({name: count for name, count in airgraph.explain().to_dict()["counters"].items() if count})
"""


def test_a_program_that_fits_is_captured_whatever_the_allocator_caches(device: str, tmp_path: Path) -> None:
    """No block can be given back while a capture is under way: not those cached before, nor those of a first run
    outside the pool, which would be needed twice."""
    if simulator(device) is None:
        pytest.skip("the memory of a simulated device is limited here")
    script = tmp_path / "program.py"
    script.write_text(_ALMOST_FULL)
    done = run_command(str(script), device, device=device)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith("{'captures': 1, 'replays': 3}\n"), done.stdout
