"""CPU graphs by hand keep torch.cuda's contract."""

import gc
import itertools
import threading
import time
from collections.abc import Callable

import pytest
import torch
from torch import nn

import airgraph
from airgraph.cpu import CPUGraph, graph, graph_pool_handle, synchronize
from airgraph.errors import CaptureError


def test_capture_records_and_replay_executes() -> None:
    g, x = CPUGraph(), torch.ones(3)
    with graph(g):
        x.add_(1)
        y = x * 10
    assert torch.equal(x, torch.ones(3)), "capture must not execute"
    for call in range(1, 4):
        g.replay()
        assert torch.equal(x, torch.full((3,), 1.0 + call))
        assert torch.equal(y, x * 10)


def test_results_have_fixed_memory() -> None:
    g, x = CPUGraph(), torch.ones(3)
    with graph(g):
        y = x + 1
    address = y.data_ptr()
    g.replay()
    x.fill_(5)
    g.replay()
    assert y.data_ptr() == address
    assert torch.equal(y, torch.full((3,), 6.0))


def test_views_of_results_follow() -> None:
    g, x = CPUGraph(), torch.arange(6.0).reshape(2, 3)
    with graph(g):
        y = (x * 2).t()
        z = y[1]
    g.replay()
    assert torch.equal(y, (x * 2).t())
    assert torch.equal(z, (x * 2).t()[1])


def test_capture_end_without_the_context_manager() -> None:
    g, x = CPUGraph(), torch.ones(2)
    g.capture_begin()
    y = x + 1
    g.capture_end()
    g.replay()
    assert torch.equal(y, torch.full((2,), 2.0))


def test_a_training_step_can_be_captured() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    x = torch.randn(2, 4)
    g = CPUGraph()
    with graph(g):
        loss = model(x).square().sum()
        loss.backward()
    g.replay()
    grad = model.weight.grad.clone()
    model.zero_grad()
    model(x).square().sum().backward()
    torch.testing.assert_close(grad, model.weight.grad)


def test_tensors_from_outside_stay_alive_with_the_graph() -> None:
    g, x = CPUGraph(), torch.full((4096,), 3.0)
    with graph(g):
        y = x * 2
    del x
    gc.collect()
    junk = [torch.zeros(4096) for _ in range(50)]
    g.replay()
    assert torch.equal(y, torch.full((4096,), 6.0)) and junk


def test_results_outlive_the_graph() -> None:
    g, x = CPUGraph(), torch.ones(3)
    with graph(g):
        y = x + 1
    g.replay()
    g.reset()
    del g
    gc.collect()
    assert torch.equal(y, torch.full((3,), 2.0))


def test_a_dropped_result_is_still_computed_safely() -> None:
    g, x = CPUGraph(), torch.ones(3)
    with graph(g):
        y = (x + 1) * 2
    del y
    gc.collect()
    for _ in range(10):
        g.replay()


def _sum(g: CPUGraph, x: torch.Tensor) -> torch.Tensor:
    with graph(g):
        return x + 1


def test_after_reset_a_graph_captures_again() -> None:
    g, x = CPUGraph(), torch.ones(2)
    _sum(g, x)
    g.reset()
    y = _sum(g, x)
    g.replay()
    assert torch.equal(y, torch.full((2,), 2.0))


@pytest.mark.parametrize(
    ("mode", "own", "other"), [("global", True, True), ("thread_local", True, False), ("relaxed", False, False)]
)
def test_capture_error_mode(mode: str, own: bool, other: bool) -> None:
    def raises() -> bool:
        try:
            synchronize()
        except CaptureError as error:
            assert "not allowed while a graph is captured" in str(error)
            return True
        return False

    g = CPUGraph()
    g.capture_begin(capture_error_mode=mode)
    assert raises() is own
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(raises()))
    thread.start()
    thread.join()
    assert found == [other]
    if own or other:
        with pytest.raises(CaptureError, match="invalidated"):
            g.capture_end()
    else:
        g.capture_end()
    synchronize()


def test_other_threads_execute_during_a_capture() -> None:
    g, found = CPUGraph(), []
    g.capture_begin()
    thread = threading.Thread(target=lambda: found.append(torch.ones(2) + 1))
    thread.start()
    thread.join()
    g.capture_end()
    assert torch.equal(found[0], torch.full((2,), 2.0))


_DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.int64, torch.int32,
           torch.int16, torch.int8, torch.uint8, torch.bool]  # fmt: skip


@pytest.mark.parametrize("dtype", _DTYPES)
def test_dtypes_layouts_and_promotion(dtype: torch.dtype) -> None:
    base = torch.arange(24).reshape(4, 6).to(dtype)
    other = torch.arange(6).to(torch.int32)

    def program(x: torch.Tensor) -> list[torch.Tensor]:
        return [x + other, x * 2, x + 1.5, x.t() + x.t(), x[::2, 1::2] * x[::2, 1::2], x[:0] + x[:0], x[1, 2] + 1,
                x.sum(), x.reshape(-1)[5:] == 3, torch.cat([x, x], 1), x.to(torch.float32) / 3, x.clone(),
                x.expand(2, 4, 6) * 2]  # fmt: skip

    g = CPUGraph()
    with graph(g):
        ours = program(base)
    g.replay()
    for mine, theirs in zip(ours, program(base), strict=True):
        assert mine.dtype == theirs.dtype and mine.stride() == theirs.stride()
        assert torch.equal(mine, theirs)


def test_lazy_conjugation_is_resolved() -> None:
    x = torch.randn(3, dtype=torch.complex64)
    g = CPUGraph()
    with graph(g):
        y, z = x.conj() * 2, x.conj()
        w = torch.view_as_real(x).sum() + x.conj().imag
    g.replay()
    assert torch.equal(y, x.conj() * 2) and torch.equal(z, x.conj())
    assert torch.equal(w, torch.view_as_real(x).sum() + x.conj().imag)


def test_random_numbers_are_fresh_and_in_eager_order() -> None:
    def program() -> tuple[torch.Tensor, ...]:
        return torch.rand(3), torch.randn(2, 2), torch.randint(0, 9, (4,)), torch.empty(3).uniform_(), torch.randperm(5)

    g = CPUGraph()
    with graph(g):
        ours = program()
    torch.manual_seed(3)
    g.replay()
    first = [t.clone() for t in ours]
    g.replay()
    second = [t.clone() for t in ours]
    torch.manual_seed(3)
    for theirs in (first, second):
        assert all(torch.equal(a, b) for a, b in zip(theirs, program(), strict=True))


def test_inference_mode_and_foreach_and_out() -> None:
    params, grads, c = [torch.ones(2), torch.ones(3)], [torch.ones(2), torch.ones(3)], torch.empty(2)
    g = CPUGraph()
    with torch.inference_mode(), graph(g):
        torch._foreach_add_(params, grads, alpha=0.5)
        torch.add(params[0], 1, out=c)
        y = nn.functional.linear(params[1], torch.ones(2, 3))
    g.replay()
    assert torch.equal(params[1], torch.full((3,), 1.5))
    assert torch.equal(c, torch.full((2,), 2.5))
    assert torch.equal(y, torch.full((2,), 4.5))


def _allocations_in_replay(program: Callable[[], object]) -> int:
    g = CPUGraph()
    with torch.no_grad(), graph(g):
        program()
    g.replay()
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        g.replay()
    return sum(event.count for event in profile.key_averages() if event.key == "[memory]")


def test_replay_allocates_no_tensor_memory_outside_the_functional_tier() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 8), nn.Softmax(-1))
    x, image, kernel = torch.randn(2, 8), torch.randn(1, 2, 8), torch.randn(2, 2, 3)
    assert _allocations_in_replay(lambda: model(x)) == 0
    assert _allocations_in_replay(lambda: nn.functional.conv1d(image, kernel)) > 0, "convolution is functional"


def test_airgraph_pool_handles() -> None:
    assert airgraph.graph_pool_handle().device_type == "cpu"
    with pytest.raises(airgraph.errors.OptionError, match="no runtime for device 'xpu'"):
        airgraph.graph_pool_handle("xpu")


def test_a_pool_knows_its_bytes_and_gives_them_back() -> None:
    pool, g = graph_pool_handle(), CPUGraph()
    with graph(g, pool=pool):
        ((torch.ones(1000) + 1) * 2).sum()
    assert pool.nbytes >= 8000 and pool.graphs == 1
    g.reset()
    gc.collect()
    assert pool.nbytes == 0 and pool.graphs == 0


def test_replays_from_several_threads_are_serialised() -> None:
    x, pick = torch.randn(64, 64), torch.tensor([3, 1])
    g = CPUGraph()
    with torch.no_grad(), graph(g):
        y = torch.sort(x @ x, dim=1).values[pick].cumsum(0).clone()
    g.replay()
    expected = y.clone()
    threads = [threading.Thread(target=lambda: [g.replay() for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(y, expected)


def test_replay_releases_the_gil() -> None:
    x = torch.randn(384, 384)
    g = CPUGraph()
    with torch.no_grad(), graph(g):
        y = x
        for _ in range(100):
            y = torch.tanh(x @ y)
    g.replay()
    span: list[float] = []

    def replay() -> None:
        begin = time.perf_counter()
        g.replay()
        span.extend((begin, time.perf_counter()))

    thread = threading.Thread(target=replay)
    ticks = [time.perf_counter()]
    thread.start()
    while thread.is_alive():
        time.sleep(0)
        ticks.append(time.perf_counter())
    during = [b - a for a, b in itertools.pairwise(ticks) if a < span[1] and b > span[0]]
    assert max(during) < (span[1] - span[0]) * 0.8, "this thread stood still for the whole replay"


@torch.no_grad()
def test_a_compiled_function_within_a_capture_is_recorded_as_its_operators() -> None:
    pool = airgraph.graph_pool_handle()
    compiled = torch.compile(lambda x: (x + 1).relu(), backend="airgraph", options={"use_graph_pool": pool})
    x = torch.ones(3)
    compiled(x)
    g = CPUGraph()
    with graph(g, pool=pool):
        y = compiled(compiled(x))
    x.fill_(5)
    g.replay()
    assert y.tolist() == [7.0] * 3 and compiled(x).tolist() == [6.0] * 3


def test_out_of_no_elements_yet_made_within_the_capture() -> None:
    g, x = CPUGraph(), torch.ones(3)
    with graph(g):
        out = torch.empty(0)
        torch.add(x, 1, out=out)
        grown = torch.empty(0)
        grown.resize_(2, 3).fill_(4)
    g.replay()
    assert torch.equal(out, x + 1)
    assert torch.equal(grown, torch.full((2, 3), 4.0))


def test_autograd_sees_a_replay_that_writes_what_it_has_saved() -> None:
    weight, x = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)
    recorded = CPUGraph()
    with torch.no_grad(), graph(recorded):
        weight.mul_(2)
        result = weight + 1
    kept = torch.randn(4, 4, requires_grad=True) * result
    loss = (x @ weight).sum()
    recorded.replay()
    for each in (loss, kept.sum()):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            each.backward()
