"""Capture executes nothing; every call executes exactly once, the first one too."""

import threading
import weakref

import pytest
import torch
from torch import nn

import airgraph
from airgraph.capture.key import GraphKey
from airgraph.capture.ledger import ledger
from airgraph.errors import InputMoved, ReplayError


class Projection(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.proj(x)


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.add_(1)
        return x * self.cache


def _graphs() -> list[dict]:
    return airgraph.explain().to_dict()["graphs"]


def _counters() -> dict[str, int]:
    return airgraph.explain().to_dict()["counters"]


@torch.no_grad()
def test_a_mutated_cache_counts_every_call() -> None:
    model = Counter()
    compiled = torch.compile(model, backend="airgraph", fullgraph=True)
    for call in range(1, 6):
        out = compiled(torch.full((3,), 2.0))
        assert torch.equal(model.cache, torch.full((3,), float(call)))
        assert torch.equal(out, torch.full((3,), 2.0 * call))
    assert _counters() == {"captures": 1, "recaptures": 0, "replays": 5, "eager_calls": 0}


@torch.no_grad()
def test_one_capture_a_shape() -> None:
    compiled = torch.compile(lambda x: x.relu() + x.shape[0], backend="airgraph", dynamic=True, fullgraph=True)
    for rows in (3, 5, 3, 7, 5):
        x = torch.randn(rows)
        assert torch.equal(compiled(x), x.relu() + rows)
    assert _counters()["captures"] == 3
    assert [row["key"] for row in _graphs()] == ["(3)", "(5)", "(7)"]


def test_numbers_that_are_equal_but_of_another_type_have_another_key() -> None:
    assert GraphKey.of([1]) != GraphKey.of([True]) != GraphKey.of([1.0])
    assert GraphKey.of([1, 2]) == GraphKey.of([1, 2])
    assert hash(GraphKey.of([1, 2])) == hash(GraphKey.of([1, 2]))


@torch.no_grad()
def test_an_output_that_is_held_survives_later_calls() -> None:
    compiled = torch.compile(lambda x: x * 2, backend="airgraph")
    held = [compiled(torch.full((4,), float(i))) for i in range(6)]
    views = [out[1:3] for out in held]
    compiled(torch.full((4,), 99.0))
    for i, (out, view) in enumerate(zip(held, views, strict=True)):
        assert torch.equal(out, torch.full((4,), 2.0 * i))
        assert torch.equal(view, torch.full((2,), 2.0 * i))


@torch.no_grad()
def test_an_output_that_is_dropped_is_written_again_in_place() -> None:
    compiled = torch.compile(lambda x: x * 2, backend="airgraph")
    first = compiled(torch.ones(4)).data_ptr()
    assert compiled(torch.ones(4)).data_ptr() == first


@torch.no_grad()
def test_outputs_that_share_memory_still_do() -> None:
    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        return y, y[1:]

    out, view = torch.compile(both, backend="airgraph")(torch.ones(4))
    assert view.data_ptr() == out.data_ptr() + 4
    out.add_(1)
    assert torch.equal(view, torch.full((3,), 3.0))


@torch.no_grad()
@pytest.mark.parametrize("policy", ["overwrite", "error", "warn"])
def test_live_outputs_policies(policy: str, recwarn: pytest.WarningsRecorder) -> None:
    compiled = torch.compile(lambda x: x * 2, backend="airgraph", options={"live_outputs": policy})
    held = compiled(torch.ones(4))
    if policy == "error":
        with pytest.raises(ReplayError, match="still held"):
            compiled(torch.zeros(4))
        del held
        assert torch.equal(compiled(torch.zeros(4)), torch.zeros(4))
        return
    compiled(torch.zeros(4))
    compiled(torch.zeros(4))
    assert torch.equal(held, torch.zeros(4))
    assert sum("still held" in str(w.message) for w in recwarn.list) == (1 if policy == "warn" else 0)


@torch.no_grad()
def test_storage_that_the_caller_resized_is_not_written() -> None:
    compiled = torch.compile(lambda x: x * 2, backend="airgraph")
    out = compiled(torch.ones(1000))
    out.untyped_storage().resize_(0)
    del out
    assert torch.equal(compiled(torch.ones(1000)), torch.full((1000,), 2.0))


@torch.no_grad()
@pytest.mark.parametrize("chosen", [True, (1,)])
def test_clone_output_gives_memory_of_its_own(chosen: object) -> None:
    compiled = torch.compile(lambda x: (x * 2, x + 1), backend="airgraph", options={"clone_output": chosen})
    held = [compiled(torch.full((4,), float(i))) for i in range(3)]
    for i, (double, more) in enumerate(held):
        assert torch.equal(double, torch.full((4,), 2.0 * i))
        assert torch.equal(more, torch.full((4,), i + 1.0))


@torch.no_grad()
def test_inputs_as_outputs_and_their_views_alias_the_input() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x, x.t(), y[1:], x + 1

    x, y = torch.randn(3, 4), torch.randn(5)
    same, transposed, sliced, fresh = torch.compile(program, backend="airgraph")(x, y)
    assert same is x
    assert transposed.data_ptr() == x.data_ptr()
    assert torch.equal(transposed, x.t())
    assert sliced.data_ptr() == y[1:].data_ptr()
    assert torch.equal(fresh, x + 1)


@torch.no_grad()
def test_non_contiguous_and_expanded_inputs() -> None:
    compiled = torch.compile(lambda x: x.transpose(0, 1) * 2 + 1, backend="airgraph", dynamic=False)
    for x in (torch.randn(4, 6).t(), torch.randn(8, 6)[::2], torch.randn(1, 6).expand(4, 6), torch.randn(4, 0)):
        assert torch.equal(compiled(x), x.transpose(0, 1) * 2 + 1)


@torch.no_grad()
def test_weights_replaced_are_seen() -> None:
    model = Projection()
    compiled = torch.compile(model, backend="airgraph", options={"kernels": "exact"})
    x = torch.randn(2, 4)
    compiled(x)
    model.proj.weight.data = torch.randn(4, 4)
    assert torch.equal(compiled(x), model(x))
    assert _counters()["captures"] == 1 and _counters()["recaptures"] == 0


@torch.no_grad()
def test_weights_replaced_raise_where_asked() -> None:
    model = Projection()
    compiled = torch.compile(model, backend="airgraph", options={"on_input_move": "error", "kernels": "exact"})
    x = torch.randn(2, 4)
    compiled(x)
    old = model.proj.weight.data
    model.proj.weight.data = torch.randn(4, 4)
    with pytest.raises(InputMoved, match=r"self.proj.weight, static\) was at 0x"):
        compiled(x)
    model.proj.weight.data = old
    assert torch.equal(compiled(x), model(x))


@torch.no_grad()
def test_capture_limit_keeps_the_latest_with_one_warning_that_names_what_changes() -> None:
    compiled = torch.compile(lambda x: x + x.shape[0], backend="airgraph", dynamic=True, options={"capture_limit": 2})
    with pytest.warns(UserWarning, match=r"capture_limit=2 .* What keeps changing: .*x.* \(such as 2, 3\)") as caught:
        for rows in (2, 3, 4, 5, 2):
            assert torch.equal(compiled(torch.zeros(rows)), torch.full((rows,), float(rows)))
    assert len([w for w in caught if "capture_limit" in str(w.message)]) == 1
    assert _counters()["eager_calls"] == 0 and _counters()["captures"] == 5
    assert [row["key"] for row in _graphs() if row["state"] == "captured"] == ["(5)", "(2)"]


@torch.no_grad()
def test_static_inputs_are_not_kept_alive() -> None:
    compiled = torch.compile(lambda x, w: x @ w, backend="airgraph")
    weight = torch.randn(4, 4)
    torch._dynamo.mark_static_address(weight)
    compiled(torch.randn(2, 4), weight)
    graphs = list(ledger.callables)
    torch._dynamo.reset()
    gone = weakref.ref(weight)
    del weight
    assert gone() is None
    assert any(graph.captures for graph in graphs)


@torch.no_grad()
def test_mark_static_address_is_respected() -> None:
    compiled = torch.compile(lambda x, w: x @ w, backend="airgraph")
    weight = torch.randn(4, 4)
    torch._dynamo.mark_static_address(weight)
    compiled(torch.randn(2, 4), weight)
    assert _graphs()[0]["copied_nbytes"] == 2 * 4 * 4


def test_calls_from_several_threads_are_correct() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
    compiled = torch.compile(model, backend="airgraph", fullgraph=True, options={"kernels": "exact"})
    inputs = [torch.randn(4, 16) for _ in range(4)]
    with torch.no_grad():
        expected = [model(x) for x in inputs]
        compiled(inputs[0])
    wrong: list[int] = []

    def work(i: int) -> None:
        with torch.no_grad():
            for _ in range(200):
                if not torch.equal(compiled(inputs[i]), expected[i]):
                    wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@torch.no_grad()
def test_reentrant_use_raises_and_the_graph_stays_usable() -> None:
    inner: list = []

    @torch.library.custom_op("airgraph_test::call_back", mutates_args=())
    def call_back(x: torch.Tensor) -> torch.Tensor:
        return inner[0](x) if inner else x.clone()

    @call_back.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    compiled = torch.compile(lambda x: call_back(x) + 1, backend="airgraph", fullgraph=True)
    x = torch.ones(3)
    assert torch.equal(compiled(x), x + 1)
    inner.append(compiled)
    with pytest.raises(ReplayError, match="called by an operator of a graph that is running"):
        compiled(x)
    inner.clear()
    assert torch.equal(compiled(x), x + 1)


def test_training_runs_uncaptured_and_correct_with_one_warning() -> None:
    model = nn.Linear(4, 4)
    compiled = torch.compile(model, backend="airgraph")
    x = torch.randn(2, 4)
    compiled(x).sum().backward()
    grad = model.weight.grad.clone()
    model.weight.grad = None
    model(x).sum().backward()
    assert torch.equal(grad, model.weight.grad)
    assert all(row["state"] == "skipped" for row in _graphs())
    assert "gradients" in _graphs()[0]["reason"]


@torch.no_grad()
def test_reset_forgets_captures_and_frees_pools() -> None:
    compiled = torch.compile(lambda x: x.exp().sum(), backend="airgraph")
    compiled(torch.randn(1000))
    assert airgraph.explain().to_dict()["pools"]
    airgraph.reset()
    report = airgraph.explain().to_dict()
    assert report["graphs"] == [] and report["pools"] == []
    compiled(torch.randn(1000))
    assert _counters()["captures"] == 1


@torch.no_grad()
@pytest.mark.parametrize("option", ["force_eager", "force_recapture"])
def test_force_options(option: str) -> None:
    compiled = torch.compile(lambda x: x + 1, backend="airgraph", options={option: True})
    for i in range(3):
        assert torch.equal(compiled(torch.full((2,), float(i))), torch.full((2,), i + 1.0))
    expected = {"force_eager": (0, 3), "force_recapture": (3, 0)}[option]
    assert (_counters()["captures"], _counters()["eager_calls"]) == expected


@torch.no_grad()
def test_random_numbers_follow_torch_generator_in_eager_order() -> None:
    def noisy(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x + torch.rand(3), torch.randn(3), nn.functional.dropout(x, 0.5), torch.bernoulli(torch.full((4,), 0.5))

    compiled = torch.compile(noisy, backend="airgraph")
    x = torch.ones(3)
    compiled(x)
    torch.manual_seed(7)
    captured = [compiled(x) for _ in range(3)]
    torch.manual_seed(7)
    eager = [noisy(x) for _ in range(3)]
    for ours, theirs in zip(captured, eager, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert not torch.equal(captured[0][1], captured[1][1])


@torch.no_grad()
@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_a_default_device_does_not_matter(device: str) -> None:
    compiled = torch.compile(lambda x: (x * 2).exp().sum() + 1, backend="airgraph")
    x = torch.ones(4)
    with torch.device(device):
        out = compiled(x)
    assert torch.equal(out, (x * 2).exp().sum() + 1)


@torch.no_grad()
def test_reset_undoes_the_capture_limit_and_reports_what_still_cannot_be_captured() -> None:
    limited = torch.compile(lambda x: x + 1, backend="airgraph", dynamic=True, options={"capture_limit": 1})
    with pytest.warns(UserWarning, match="capture_limit"):
        limited(torch.ones(2)), limited(torch.ones(3)), limited(torch.ones(4))
    never = torch.compile(lambda x: x + 1, backend="airgraph", options={"force_eager": True})
    never(torch.ones(2))
    airgraph.reset()
    assert _graphs() == []
    never(torch.ones(2)), never(torch.ones(2))
    assert [row["reason"] for row in _graphs()] == ["force_eager is set"]
    limited(torch.ones(3))
    assert _counters()["captures"] == 1


@torch.no_grad()
def test_reset_from_within_a_call_raises_instead_of_hanging() -> None:
    @torch.library.custom_op("airgraph_test::resets", mutates_args=())
    def resets(x: torch.Tensor) -> torch.Tensor:
        airgraph.reset()
        return x.clone()

    @resets.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    compiled = torch.compile(lambda x: resets(x) + 1, backend="airgraph", fullgraph=True)
    with pytest.raises(ReplayError, match="reset of .* was called by an operator"):
        compiled(torch.ones(2))


@torch.no_grad()
def test_clone_output_indices_are_checked() -> None:
    compiled = torch.compile(lambda x: x + 1, backend="airgraph", options={"clone_output": (7,)})
    with pytest.raises(Exception, match="the graph has 1 outputs, got the indices"):
        compiled(torch.ones(2))
