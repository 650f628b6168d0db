"""The run that CUDA needs before a capture is the first call itself: nothing is executed twice, nothing is copied."""

from pathlib import Path

import pytest
import torch
from process import run_command
from reports import counters, report
from torch import Tensor

import airgraph

_runs: list[int] = []


@torch.library.custom_op("airgraph_cuda::counted", mutates_args=())
def counted(x: Tensor) -> Tensor:
    if not torch.cuda.is_current_stream_capturing():
        _runs.append(1)
    return x * 2


counted.register_fake(torch.empty_like)


@torch.no_grad()
def test_hidden_state_is_touched_once() -> None:
    call = torch.compile(lambda x: counted(x) + 1, backend="airgraph")
    _runs.clear()
    assert call(torch.ones(3, device="cuda")).tolist() == [3.0] * 3
    assert len(_runs) == 1
    assert call(torch.zeros(3, device="cuda")).tolist() == [1.0] * 3
    assert len(_runs) == 1 and counters() == {"captures": 1, "recaptures": 0, "replays": 2, "eager_calls": 0}


_addresses: list[int] = []


@torch.library.custom_op("airgraph_cuda::seen", mutates_args=())
def seen(x: Tensor) -> Tensor:
    _addresses.append(x.data_ptr())
    return x * 2


seen.register_fake(torch.empty_like)


@torch.no_grad()
@pytest.mark.parametrize("how", ["call", "warmup"])
def test_it_runs_in_the_pool_on_the_graphs_own_buffers(how: str) -> None:
    call = torch.compile(lambda x: seen(x).relu() + 1, backend="airgraph")
    _addresses.clear()
    x = torch.ones(1 << 20, device="cuda")
    if how == "warmup":
        airgraph.warmup(call, [x], progress=False)
    assert call(x)[0].item() == 3.0
    run, captured = _addresses
    assert run == captured != x.data_ptr()
    segments = [each for each in torch.cuda.memory_snapshot() if tuple(each["segment_pool_id"]) != (0, 0)]
    assert any(each["address"] <= run < each["address"] + each["total_size"] for each in segments)
    reserved = torch.cuda.memory_reserved()
    assert call(x + 1)[0].item() == 5.0
    assert torch.cuda.memory_reserved() == reserved


@torch.no_grad()
def test_captures_in_place_of_others_take_no_memory_of_their_own() -> None:
    layer = torch.nn.Linear(1024, 1024, device="cuda")
    call = torch.compile(torch.nn.Sequential(layer, torch.nn.ReLU()), backend="airgraph", options={"capture_limit": 1})
    x = torch.randn(512, 1024, device="cuda")
    reserved = []
    with pytest.warns(UserWarning, match="capture_limit"):
        for _ in range(8):
            layer.weight.data = layer.weight.data.clone()
            call(x)
            torch.cuda.empty_cache()
            reserved.append(torch.cuda.memory_reserved())
    assert counters()["recaptures"] == 7
    assert max(reserved[4:]) <= max(reserved[:4])


@torch.no_grad()
def test_written_inputs_are_written_once_and_not_copied() -> None:
    """A KV cache of 96 MB takes no second one."""
    cache, x = torch.zeros(24 << 20, device="cuda"), torch.ones(1, device="cuda")
    call = torch.compile(lambda cache, x: cache.add_(x)[:4] * 1, backend="airgraph")
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.max_memory_allocated()
    for step in range(1, 4):
        assert call(cache, x).tolist() == [float(step)] * 4
    assert cache[-1].item() == 3.0
    assert torch.cuda.max_memory_allocated() - before < cache.nbytes / 2


@torch.no_grad()
def test_random_numbers_go_on_as_they_would_eagerly() -> None:
    call = torch.compile(lambda x: x + torch.rand_like(x), backend="airgraph")
    x = torch.zeros(8, device="cuda")
    torch.manual_seed(3)
    expected = [torch.rand_like(x) for _ in range(3)]
    torch.manual_seed(3)
    got = [call(x) for _ in range(3)]
    torch.testing.assert_close(got, expected)


@torch.no_grad()
def test_a_capture_that_fails_leaves_the_call_done() -> None:
    import simcuda

    cache, x = torch.zeros(4, device="cuda"), torch.ones(4, device="cuda")
    call = torch.compile(lambda cache, x: cache.add_(x) * 1, backend="airgraph")
    with simcuda.fail_once("cudaStreamEndCapture"), pytest.warns(UserWarning, match="runs eagerly"):
        assert call(cache, x).tolist() == [1.0] * 4
    assert call(cache, x).tolist() == [2.0] * 4 and cache.tolist() == [2.0] * 4


@torch.no_grad()
def test_outputs_that_no_graph_can_return_after_all_was_written() -> None:
    def program(cache: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        cache.add_(x)
        return x[1:].view(torch.int32), cache * 2

    call = torch.compile(program, backend="airgraph")
    cache, x = torch.zeros(4, device="cuda"), torch.ones(4, device="cuda")
    with pytest.warns(UserWarning, match="seen as another dtype"):
        seen, twice = call(cache, x)
    assert cache.tolist() == [1.0] * 4 and twice.tolist() == [2.0] * 4
    assert seen.data_ptr() == x[1:].data_ptr() and seen.dtype == torch.int32
    seen, twice = call(cache, x)
    assert cache.tolist() == [2.0] * 4 and twice.tolist() == [4.0] * 4


@torch.no_grad()
def test_they_lie_in_no_memory_of_the_pool() -> None:
    """Where graphs that were captured into it before would write."""

    def large(x: Tensor) -> Tensor:
        return torch.stack([torch.cos(torch.sin(x + i)) for i in range(6)]).sum(0)

    options = {"use_graph_pool": airgraph.graph_pool_handle("cuda")}
    before = torch.compile(large, backend="airgraph", options=options)
    call = torch.compile(lambda x: (x[1:].view(torch.int32), x * 2), backend="airgraph", options=options)
    x = torch.ones(1 << 16, device="cuda")
    before(x)
    with pytest.warns(UserWarning, match="seen as another dtype"):
        twice = call(x)[1]
    before(x)
    assert set(twice.tolist()) == {2.0}


class _Odd(Exception):
    pass


@torch.no_grad()
@pytest.mark.parametrize("kind", [KeyError, ValueError, KeyboardInterrupt, _Odd])
def test_work_of_a_call_that_is_left_comes_before_what_the_caller_does_next(kind: type[BaseException]) -> None:
    @torch.library.custom_op(f"airgraph_cuda::raises_{kind.__name__.strip('_').lower()}", mutates_args=())
    def raises(x: Tensor) -> Tensor:
        raise kind("odd")

    raises.register_fake(torch.empty_like)

    def program(cache: Tensor, x: Tensor) -> Tensor:
        for _ in range(3):
            cache.add_(x)
        return raises(cache * 1)

    call = torch.compile(program, backend="airgraph", options={"inplace_pass": False})
    cache, x = torch.zeros(1 << 18, device="cuda"), torch.ones(1 << 18, device="cuda")
    torch.cuda.synchronize()
    with pytest.raises(kind, match="odd"):
        call(cache, x)
    seen = cache.clone()
    torch.cuda.synchronize()
    assert torch.equal(seen, cache)


_OUT_OF_MEMORY = """
import warnings
import torch
import airgraph

warnings.simplefilter("ignore")
torch.set_grad_enabled(False)
torch.cuda.set_per_process_memory_fraction((256 << 20) / torch.cuda.mem_get_info()[1])
x, k = torch.zeros(90 << 18, device="cuda"), torch.zeros(4, device="cuda")
torch.manual_seed(5)
want = [torch.rand_like(k).tolist() for _ in range(3)]
call = torch.compile(lambda x, k: (torch.rand_like(k), (x * 2).sum()), backend="airgraph", dynamic=False)
torch.manual_seed(5)
print([call(x, k)[0].tolist() for _ in range(3)] == want, airgraph.explain().to_dict()["counters"]["eager_calls"])
"""


def test_numbers_are_drawn_once_where_the_run_stops_before_it_has_written(tmp_path: Path) -> None:
    """The device has room for the call, but not for a copy of its input beside it."""
    script = tmp_path / "program.py"
    script.write_text(_OUT_OF_MEMORY)
    done = run_command(str(script), device="cuda")
    assert (done.returncode, done.stdout.split()) == (0, ["True", "3"]), done.stderr


@torch.no_grad()
def test_a_call_that_fails_halfway_raises_and_is_not_run_again() -> None:
    fails = [True]

    @torch.library.custom_op("airgraph_cuda::may_fail", mutates_args=())
    def may_fail(x: Tensor) -> Tensor:
        if fails[0]:
            raise RuntimeError("not today")
        return x + 1

    may_fail.register_fake(torch.empty_like)

    def program(cache: Tensor, x: Tensor) -> Tensor:
        cache.add_(x)
        return may_fail(cache * 1)

    call = torch.compile(program, backend="airgraph", options={"inplace_pass": False})
    cache, x = torch.zeros(2, device="cuda"), torch.ones(2, device="cuda")
    with pytest.raises(RuntimeError, match="not today"):
        call(cache, x)
    assert cache.tolist() in ([1.0, 1.0], [0.0, 0.0])
    written = cache[0].item()
    fails[0] = False
    assert call(cache, x).tolist() == [written + 2] * 2
    assert call(cache, x).tolist() == [written + 3] * 2
    assert counters()["eager_calls"] == 0


@torch.no_grad()
def test_warming_executes_nothing() -> None:
    cache = torch.zeros(4, device="cuda")
    model = torch.compile(lambda x: cache.add_(x) * 1, backend="airgraph")
    airgraph.warmup(model, [torch.ones(4, device="cuda")])
    assert cache.tolist() == [0.0] * 4
    assert model(torch.ones(4, device="cuda")).tolist() == [1.0] * 4
    assert report()["counters"]["captures"] == 1
