"""Capture executes nothing, every call executes exactly once, and results are those of eager."""

import dataclasses
import gc
import threading
from collections.abc import Callable

import pytest
import torch
from torch import nn

import airgraph
from airgraph.errors import InputMoved
from airgraph.runtime.registry import runtime_for


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x * self.count


def _perceptron(device: str) -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(device).eval()


def _counters() -> dict[str, int]:
    return airgraph.explain().to_dict()["counters"]


@torch.no_grad()
def test_results_are_those_of_eager(device: str) -> None:
    model = _perceptron(device)
    compiled = torch.compile(model, backend="airgraph", fullgraph=True)
    for _ in range(4):
        x = torch.randn(2, 8, device=device)
        torch.testing.assert_close(compiled(x), model(x))
    assert _counters() == {"captures": 1, "recaptures": 0, "replays": 4, "eager_calls": 0}


@torch.no_grad()
def test_a_mutated_buffer_changes_exactly_once_a_call(device: str) -> None:
    model = Counter().to(device)
    compiled = torch.compile(model, backend="airgraph", fullgraph=True)
    for call in range(1, 6):
        out = compiled(torch.full((3,), 2.0, device=device))
        assert model.count.tolist() == [call] * 3
        assert out.tolist() == [2.0 * call] * 3
    assert _counters() == {"captures": 1, "recaptures": 0, "replays": 5, "eager_calls": 0}


@torch.no_grad()
def test_mutated_arguments_and_views_of_one_storage(device: str) -> None:
    def step(keys: torch.Tensor, values: torch.Tensor, position: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        keys.index_copy_(1, position, x)
        values[:, 1:].mul_(2)
        return keys.sum(1) + values.sum(1)

    def caches() -> tuple[torch.Tensor, torch.Tensor]:
        both = torch.arange(40.0, device=device).view(2, 4, 5)
        return both[0], both[1]

    ours, theirs = caches(), caches()
    compiled = torch.compile(step, backend="airgraph", fullgraph=True)
    for call in range(4):
        position = torch.tensor([call], device=device)
        x = torch.randn(4, 1, device=device)
        torch.testing.assert_close(compiled(*ours, position, x), step(*theirs, position, x))
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)
    assert _counters()["eager_calls"] == 0


@torch.no_grad()
def test_dynamic_shapes_are_captured_once_each(device: str) -> None:
    compiled = torch.compile(lambda x: (x * 2).relu() + x.shape[0], backend="airgraph", dynamic=True, fullgraph=True)
    for rows in (3, 5, 3, 7, 5):
        x = torch.randn(rows, 4, device=device)
        torch.testing.assert_close(compiled(x), (x * 2).relu() + rows)
    assert _counters()["captures"] == 3
    assert len({row["name"] for row in airgraph.explain().to_dict()["graphs"]}) == 1


@torch.no_grad()
def test_awkward_inputs_and_outputs(device: str) -> None:
    def program(x: torch.Tensor, empty: torch.Tensor, number: torch.Tensor) -> tuple[object, ...]:
        return x.t(), x[0], x, x + number, (x + 1)[1:], empty * 2, x.sum(), 3, None

    compiled = torch.compile(program, backend="airgraph", fullgraph=True)
    for _ in range(3):
        args = (
            torch.randn(4, 6, device=device)[:, ::2],
            torch.empty(0, 3, device=device),
            torch.randn((), device=device),
        )
        for a, b in zip(compiled(*args), program(*args), strict=True):
            if isinstance(b, torch.Tensor):
                torch.testing.assert_close(a, b)
                assert a.stride() == b.stride()
            else:
                assert a == b
    assert _counters()["eager_calls"] == 0


@torch.no_grad()
def test_inputs_of_many_dtypes_and_layouts(device: str) -> None:
    def program(*inputs: torch.Tensor) -> list[torch.Tensor]:
        return [x.logical_not() if x.dtype is torch.bool else x * 2 for x in inputs]

    def inputs() -> list[torch.Tensor]:
        floats = torch.randn(4, 6, device=device)
        numbers = torch.randint(100, (5,), device=device)
        return [floats, floats.t(), floats[:, ::2], floats[1], floats.sum(), numbers, numbers > 50, numbers[0]] + [
            floats.to(dtype) for dtype in (torch.float16, torch.bfloat16)
        ]

    compiled = torch.compile(program, backend="airgraph", fullgraph=True, dynamic=False)
    for _ in range(3):
        args = inputs()
        for ours, theirs in zip(compiled(*args), program(*args), strict=True):
            assert torch.equal(ours.cpu(), theirs.cpu())
    assert _counters()["captures"] == 1 and _counters()["eager_calls"] == 0


@torch.no_grad()
def test_a_weight_that_moved_is_followed_or_named(device: str) -> None:
    model = _perceptron(device)
    compiled = torch.compile(model, backend="airgraph", fullgraph=True)
    x = torch.randn(2, 8, device=device)
    compiled(x)
    model[0].weight.data = model[0].weight.data * 2
    torch.testing.assert_close(compiled(x), model(x))
    assert _counters()["recaptures"] == (device != "cpu")
    torch._dynamo.reset()
    strict = torch.compile(model, backend="airgraph", fullgraph=True, options={"on_input_move": "error"})
    strict(x)
    moved = model[2].bias.data.clone()
    model[2].bias.data = moved
    with pytest.raises(InputMoved, match=r"bias.*static"):
        strict(x)


@torch.no_grad()
def test_past_the_capture_limit_the_oldest_goes(device: str) -> None:
    compiled = torch.compile(lambda x: x * 2, backend="airgraph", dynamic=True, options={"capture_limit": 2})
    with pytest.warns(UserWarning, match="capture_limit=2"):
        for rows in (2, 3, 4, 5):
            x = torch.randn(rows, device=device)
            torch.testing.assert_close(compiled(x), x * 2)
    assert _counters()["captures"] == 4 and _counters()["eager_calls"] == 0


def test_threads_are_serialised(device: str) -> None:
    model = Counter().to(device)
    with torch.no_grad():
        compiled = torch.compile(model, backend="airgraph", fullgraph=True)
        compiled(torch.ones(3, device=device))
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            with torch.no_grad():
                for i in range(20):
                    value = float(seed * 100 + i)
                    out = compiled(torch.full((3,), value, device=device))
                    ratio = (out / value).tolist()
                    assert ratio[0] == pytest.approx(round(ratio[0])) and len(set(ratio)) == 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert model.count.tolist() == [81.0] * 3
    assert _counters()["captures"] == 1


@torch.no_grad()
def test_random_numbers_are_fresh_and_follow_the_generator(device: str) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return nn.functional.dropout(x, 0.5), torch.rand_like(x)

    compiled = torch.compile(program, backend="airgraph", fullgraph=True)
    x = torch.ones(1000, device=device)
    torch.manual_seed(7)
    first = [tuple(out.cpu() for out in compiled(x)) for _ in range(3)]
    torch.manual_seed(7)
    second = [tuple(out.cpu() for out in compiled(x)) for _ in range(3)]
    # The capture, within the first call, drew nothing.
    for a, b in zip(first, second, strict=True):
        assert all(map(torch.equal, a, b))
    assert not torch.equal(first[0][1], first[1][1])
    assert 0.4 < (first[0][0] == 0).float().mean() < 0.6
    assert _counters() == {"captures": 1, "recaptures": 0, "replays": 6, "eager_calls": 0}


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:airgraph.*repeat its random numbers")
@pytest.mark.parametrize(
    "draw",
    [
        lambda x: torch.bernoulli(x * 0.5),
        lambda x: torch.rand_like(x),
        lambda x: torch.randn_like(x),
        lambda x: torch.randperm(1000, device=x.device),
        lambda x: torch.normal(x, x),
        lambda x: torch.randint(100, (1000,), device=x.device),
        lambda x: x.clone().uniform_(),
        lambda x: x.clone().exponential_(),
    ],
)
def test_no_random_operator_repeats_itself(device: str, draw: Callable[[torch.Tensor], torch.Tensor]) -> None:
    compiled = torch.compile(draw, backend="airgraph", fullgraph=True)
    x = torch.ones(1000, device=device)
    first, second = compiled(x).cpu(), compiled(x).cpu()
    assert not torch.equal(first, second)


@torch.no_grad()
@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_capture_error_modes(device: str, mode: str) -> None:
    compiled = torch.compile(lambda x: x + 1, backend="airgraph", options={"capture_error_mode": mode})
    assert compiled(torch.ones(2, device=device)).tolist() == [2.0, 2.0]
    assert _counters()["captures"] == 1


@torch.no_grad()
def test_a_warm_up_leaves_no_trace(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA needs one before a capture; it works wherever graphs are the device's own."""
    if device == "cpu":
        pytest.skip("nothing runs before a capture on CPU")
    runtime = runtime_for(device)
    monkeypatch.setattr(runtime, "capabilities", dataclasses.replace(runtime.capabilities, runs_to_capture=True))
    whole = torch.zeros(8, device=device)

    def program(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        first.add_(1)
        second.mul_(2).add_(first)
        return torch.rand_like(first)

    torch.manual_seed(3)
    expected = torch.rand(4, device=device)
    torch.manual_seed(3)
    compiled = torch.compile(program, backend="airgraph", fullgraph=True)
    drawn = compiled(whole[:4], whole[4:])
    assert whole.tolist() == [1.0] * 8
    assert drawn.tolist() == expected.tolist()
    compiled(whole[:4], whole[4:])
    assert whole.tolist() == [2.0] * 4 + [4.0] * 4
    assert _counters() == {"captures": 1, "recaptures": 0, "replays": 2, "eager_calls": 0}


@torch.no_grad()
def test_garbage_is_not_collected_during_a_capture(device: str) -> None:
    if device == "cpu":
        pytest.skip("a capture on CPU forbids nothing")
    collecting = []

    @torch.library.custom_op("airgraph_conformance::watches_gc", mutates_args=())
    def watches_gc(x: torch.Tensor) -> torch.Tensor:
        collecting.append(gc.isenabled())
        return x + 1

    watches_gc.register_fake(torch.empty_like)
    compiled = torch.compile(lambda x: watches_gc(x) * 2, backend="airgraph", fullgraph=True)
    assert compiled(torch.zeros(2, device=device)).tolist() == [2.0, 2.0]
    assert collecting[-1] is False and gc.isenabled()


def test_inference_mode(device: str) -> None:
    model = _perceptron(device)
    compiled = torch.compile(model, backend="airgraph", fullgraph=True)
    with torch.inference_mode():
        for _ in range(3):
            x = torch.randn(2, 8, device=device)
            torch.testing.assert_close(compiled(x), model(x))
    assert _counters()["captures"] == 1


@torch.no_grad()
def test_numbers_on_the_host_reach_the_graph_at_each_call(device: str) -> None:
    """Tensors without dimensions on the CPU, which operators take as they take numbers, and floats that change."""

    def program(x: torch.Tensor, scale: torch.Tensor, shift: float) -> torch.Tensor:
        return (x * scale + shift).relu()

    compiled = torch.compile(program, backend="airgraph", dynamic=True, fullgraph=True)
    x = torch.randn(2, 3, device=device)
    for value in (2.5, -1.25, 3.0):
        for scale in (torch.tensor(value), torch.tensor(int(value))):
            torch.testing.assert_close(compiled(x, scale, value / 2), program(x, scale, value / 2))
    assert _counters()["captures"] == 2 and _counters()["eager_calls"] == 0
