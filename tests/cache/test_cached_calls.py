"""A cached function gives eager's results at every call, whatever has changed since it was traced, or says why not."""

from __future__ import annotations

import copy
import gc
import threading
import warnings
import weakref
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from reports import counters, report
from torch import Tensor, nn

import airgraph
from airgraph.cache.door import CachedFunction
from airgraph.errors import CacheError, OptionError, ReplayError


def cached(function: Callable[..., Any], folder: Path, **given: Any) -> CachedFunction:
    return airgraph.inference.cache_compile(function, cache_dir=folder, **{"strict": True, **given})


def test_the_first_call_is_right_and_executed_once(tmp_path: Path) -> None:
    model = Decoder()
    step = cached(model.step, tmp_path)
    for _ in range(2):
        cache, expected_cache = torch.zeros(4, 8), torch.zeros(4, 8)
        x, row = torch.randn(1, 8), torch.tensor([2])
        for _ in range(3):
            torch.testing.assert_close(step(x, cache, row), model.step(x, expected_cache, row))
            torch.testing.assert_close(cache, expected_cache)
    assert counters()["replays"] == 6 and counters()["eager_calls"] == 0
    assert len(step.files) == 1


def test_another_function_object_reads_what_the_first_one_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Decoder()
    x, cache, row = torch.randn(1, 8), torch.zeros(4, 8), torch.tensor([2])
    expected = cached(model.step, tmp_path)(x, cache, row)
    monkeypatch.setattr(torch, "compile", _must_not_be_called)
    other = Decoder()
    other.load_state_dict(model.state_dict())
    cache = torch.zeros(4, 8)
    torch.testing.assert_close(cached(other.step, tmp_path)(x, cache, row), expected)


@pytest.mark.parametrize("dynamic", [True, False])
def test_shapes_vary(tmp_path: Path, dynamic: bool) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path, dynamic=dynamic)
    for size in (4, 7, 1, 4, 2):
        x = torch.randn(size, 8)
        torch.testing.assert_close(call(x), model(x).detach())
    # A size of one is a graph of its own.
    assert len(call.files) == (2 if dynamic else 4)


def test_sizes_must_stand_to_each_other_as_when_it_was_traced(tmp_path: Path) -> None:
    def total(x: Tensor, y: Tensor) -> Tensor:
        return x + y if x.shape[0] % 4 == 0 else x - y

    call = cached(total, tmp_path)
    for size in (8, 12, 6, 9, 16):
        x, y = torch.randn(size), torch.randn(size)
        torch.testing.assert_close(call(x, y), total(x, y))
    torch.testing.assert_close(call(torch.ones(4), torch.ones(1)), torch.full((4,), 2.0))


def test_dtypes_strides_and_ranks_are_told_apart(tmp_path: Path) -> None:
    def double(x: Tensor) -> Tensor:
        return x.transpose(0, -1) * 2

    call = cached(double, tmp_path)
    base = torch.randn(6, 6)
    for x in (base, base.double(), base.t(), base[::2], base[None].expand(3, 6, 6), base):
        torch.testing.assert_close(call(x), double(x))


def test_a_mutated_argument_in_another_form_at_the_same_address(tmp_path: Path) -> None:
    def fill(cache: Tensor, x: Tensor) -> Tensor:
        cache.add_(x)
        return cache.sum()

    call = cached(fill, tmp_path, dynamic=False)
    memory = torch.zeros(16)
    for view in (memory, memory.view(4, 4), memory[:8], memory.view(torch.int32), memory[::2], memory):
        expected = view.clone()
        total = fill(expected, torch.ones((), dtype=view.dtype))
        torch.testing.assert_close(call(view, torch.ones((), dtype=view.dtype)), total)
        torch.testing.assert_close(view, expected)


def test_constants_among_the_arguments(tmp_path: Path) -> None:
    def scale(x: Tensor, factor: float = 2.0, *, up: bool = True, name: str | None = None) -> Tensor:
        x = x * factor if up else x / factor
        return x if name is None else x + len(name)

    call = cached(scale, tmp_path)
    x = torch.randn(3)
    for args, kwargs in (
        ((x,), {}),
        ((x, 3.0), {}),
        ((x,), {"up": False}),
        ((x,), {"factor": 2.0}),
        ((x, 2), {}),
        ((x,), {"name": "abc", "up": True}),
        ((x,), {}),
    ):
        torch.testing.assert_close(call(*args, **kwargs), scale(*args, **kwargs))


def test_integers_are_sizes_where_they_are_dynamic(tmp_path: Path) -> None:
    def first(x: Tensor, count: int) -> tuple[Tensor, int]:
        return x[:count] * 2, count + 1

    call = cached(first, tmp_path)
    x = torch.randn(10)
    for count in (3, 5, 9, 3):
        torch.testing.assert_close(call(x, count), first(x, count))
    torch.testing.assert_close(call(x, True)[0], first(x, True)[0])
    assert counters()["eager_calls"] == 0


def test_containers_and_objects_as_arguments(tmp_path: Path) -> None:
    @dataclass
    class State:
        layers: list[Tensor]
        sizes: dict[str, Tensor]

    def advance(x: Tensor, state: State, *rest: Tensor, **named: Tensor) -> Tensor:
        for layer in state.layers:
            layer.add_(x)
        return sum(state.sizes.values()) + sum(rest) + named["y"] + len(state.layers)

    call = cached(advance, tmp_path)
    for layers, sizes, rest in ((2, "ab", 1), (2, "ab", 1), (3, "ab", 1), (2, "abc", 2), (2, "ba", 0)):
        state = State([torch.zeros(2) for _ in range(layers)], {name: torch.ones(2) for name in sizes})
        other = copy.deepcopy(state)
        x, tail = torch.randn(2), [torch.randn(2) for _ in range(rest)]
        torch.testing.assert_close(call(x, state, *tail, y=x), advance(x, other, *tail, y=x))
        torch.testing.assert_close(state.layers, other.layers)


Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Result:
    value: Tensor
    note: str | None = None


def test_what_it_returns_has_its_structure(tmp_path: Path) -> None:
    def everything(x: Tensor, kept: list[Tensor]) -> Any:
        y = x + 1
        return {"y": y, 3: (y, [y * 2, None])}, Pair(y, "text"), Result(x * 3), kept, x.shape[0], x, True

    call = cached(everything, tmp_path)
    x, kept = torch.randn(4), [torch.ones(1)]
    for _ in range(2):
        got, expected = call(x, kept), everything(x, kept)
        assert got[0].keys() == expected[0].keys() and got[0]["y"] is got[0][3][0] is got[1].left
        torch.testing.assert_close(got[0][3][1][0], expected[0][3][1][0])
        assert type(got[1]) is Pair and got[1].right == "text"
        assert type(got[2]) is Result and got[2].note is None
        torch.testing.assert_close(got[2].value, x * 3)
        assert got[3] is kept and got[4] == 4 and got[5] is x and got[6] is True


def test_what_changes_in_the_model_is_seen_at_the_next_call(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path)
    x = torch.randn(4, 8)

    def check() -> None:
        torch.testing.assert_close(call(x), model(x).detach())

    check()
    changes: list[Callable[[], Any]] = [
        lambda: setattr(model.inner, "weight", nn.Parameter(torch.randn(8, 8))),
        lambda: model.inner.weight.data.mul_(2),
        lambda: setattr(model.inner.weight, "data", torch.randn(8, 8)),
        lambda: model.load_state_dict(Mlp().state_dict(), assign=True),
        lambda: setattr(model, "factor", 3.0),
        lambda: setattr(model, "layers", nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])),
        lambda: model.layers.append(nn.Linear(8, 8)),
        lambda: setattr(model, "inner", nn.Linear(8, 8, bias=False)),
        lambda: model.eval(),
        lambda: setattr(model.inner, "forward", lambda x: x * 5),
        lambda: delattr(model.inner, "forward"),
        lambda: setattr(model, "act", torch.tanh),
        lambda: model.double().float(),
    ]
    for change in changes:
        change()
        check()
        check()


def test_a_hook_that_is_added_later_runs(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path)
    x = torch.randn(4, 8)
    before = call(x)
    handle = model.inner.register_forward_hook(lambda module, args, out: out + 1)
    assert not torch.equal(call(x), before)
    torch.testing.assert_close(call(x), model(x).detach())
    handle.remove()
    assert torch.equal(call(x), before)


def test_tied_weights_that_come_apart(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.b = nn.Linear(4, 4)
            self.b.weight = self.a.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x))

    model = Tied()
    call = cached(model.forward, tmp_path)
    x = torch.randn(2, 4)
    torch.testing.assert_close(call(x), model(x).detach())
    model.b.weight = nn.Parameter(torch.randn(4, 4))
    torch.testing.assert_close(call(x), model(x).detach())


def test_closures_follow_what_they_close_over(tmp_path: Path) -> None:
    weight, factor = torch.randn(3), 2.0

    def scale(x: Tensor) -> Tensor:
        return x * weight * factor

    call = cached(scale, tmp_path)
    x = torch.randn(3)
    torch.testing.assert_close(call(x), scale(x))
    weight, factor = torch.randn(3), 4.0
    torch.testing.assert_close(call(x), scale(x))


def test_arguments_given_twice(tmp_path: Path) -> None:
    def step(x: Tensor, cache: Tensor) -> Tensor:
        cache.add_(1)
        return x * 2 + cache

    call = cached(step, tmp_path, strict=False)
    x, cache = torch.ones(3), torch.zeros(3)
    torch.testing.assert_close(call(x, cache), torch.full((3,), 3.0))
    both, expected = torch.ones(3), torch.ones(3)
    torch.testing.assert_close(call(both, both), step(expected, expected))
    torch.testing.assert_close(both, expected)
    # Where nothing has moved since the capture.
    x, cache = torch.ones(3), torch.zeros(3)
    for given in (x, cache, x):
        expected = cache.clone()
        result = step(expected if given is cache else given, expected)
        torch.testing.assert_close(call(given, cache), result)
        torch.testing.assert_close(cache, expected)
    memory, expected = torch.ones(4), torch.ones(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = call(memory[:3], memory[1:])
    torch.testing.assert_close(got, step(expected[:3], expected[1:]))
    torch.testing.assert_close(memory, expected)


def test_global_settings_are_told_apart(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path)
    x = torch.randn(4, 8)
    plain = call(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert call(x).dtype == model(x).dtype == torch.bfloat16
    assert call(x).dtype == torch.float32
    assert torch.equal(call(x), plain)


def test_defaults_of_dtype_and_device_are_told_apart(tmp_path: Path) -> None:
    def make(x: Tensor) -> Tensor:
        return x + torch.ones(3).sum() * 2.5

    call = cached(make, tmp_path)
    x = torch.ones(3)
    assert call(x).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        torch.testing.assert_close(call(x), make(x))
        assert len(call.files) == 2
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.device("cpu"):
        torch.testing.assert_close(call(x), make(x))
    torch.testing.assert_close(call(x), make(x))
    assert len(call.files) == 3


def test_a_function_mode_of_the_user_s_is_not_bypassed(tmp_path: Path) -> None:
    class Negate(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            return -out if func is torch.Tensor.mul else out

    def double(x: Tensor) -> Tensor:
        return x * 2

    call = cached(double, tmp_path, strict=False)
    x = torch.ones(2)
    assert call(x).tolist() == [2.0, 2.0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Negate():
            expected = double(x).tolist()
            assert call(x).tolist() == expected
    assert call(x).tolist() == [2.0, 2.0]


def test_grad_mode_does_not_matter(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path)
    x = torch.randn(4, 8)
    for mode in (torch.no_grad, torch.enable_grad, torch.inference_mode, torch.no_grad, torch.enable_grad):
        with mode():
            torch.testing.assert_close(call(x), model(x).detach())
    assert len(call.files) == 1 and counters()["captures"] == 1


def test_by_default_of_torch_compile_what_varied_once_is_dynamic(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path, dynamic=None)
    for size in (4, 7, 9, 12, 4):
        x = torch.randn(size, 8)
        torch.testing.assert_close(call(x), model(x).detach())
    assert len(call.files) == 2


def test_many_objects_of_one_class_share_a_folder(tmp_path: Path) -> None:
    for factor in range(12):
        model = Mlp()
        model.factor = float(factor)
        x = torch.randn(4, 8)
        torch.testing.assert_close(cached(model.forward, tmp_path)(x), model(x).detach())
    assert len(list(tmp_path.rglob("*.airgraph"))) == 12


def test_a_function_has_so_many_graphs(tmp_path: Path) -> None:
    def scale(x: Tensor, factor: float) -> Tensor:
        return x * factor

    call = cached(scale, tmp_path)
    x = torch.ones(2)
    for factor in range(8):
        call(x, float(factor))
    with pytest.raises(
        CacheError, match=r"8 graphs are cached, and none is right for this call \(graph_\d.airgraph: equals"
    ):
        call(x, 99.0)
    assert call(x, 3.0).tolist() == [3.0, 3.0]


def test_a_relative_folder_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call = cached(Mlp().forward, Path("graphs"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    call(torch.randn(4, 8))
    assert call.files[0].is_relative_to(tmp_path / "graphs")


def test_results_have_no_gradient(tmp_path: Path) -> None:
    model = Mlp()
    with torch.enable_grad():
        out = cached(model.forward, tmp_path)(torch.randn(4, 8, requires_grad=True))
    assert not out.requires_grad


def test_random_numbers_follow_the_seed(tmp_path: Path) -> None:
    def noisy(x: Tensor) -> Tensor:
        return torch.dropout(x, 0.5, True) + torch.rand_like(x)

    call = cached(noisy, tmp_path)
    x = torch.ones(64)
    for _ in range(2):
        torch.manual_seed(7)
        got = call(x)
        torch.manual_seed(7)
        torch.testing.assert_close(got, noisy(x))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x.view(-1), "an output is a view of an argument"),
        (lambda x: x[x > 0], "cannot be captured"),
        (lambda x: x + 1 if x.sum() > 0 else x, "tracing failed: Unsupported"),
        (lambda x: Opaque(x + 1), "the result holds an object of type .*Opaque"),
        (lambda x: 3, "computes nothing with tensors"),
        (eval("lambda x: x + 1"), "the code of <lambda> is in no file"),
    ],
)
def test_what_cannot_be_cached_says_why_and_is_compiled(
    tmp_path: Path, function: Callable[[Tensor], Any], reason: str
) -> None:
    x = torch.tensor([1.0, -2.0, 3.0])
    with pytest.raises(CacheError, match=reason):
        cached(function, tmp_path)(x)
    call = cached(function, tmp_path, strict=False)
    with pytest.warns(UserWarning, match=reason):
        got = call(x)
    expected = function(x)
    if isinstance(expected, Opaque):
        got, expected = got.held, expected.held
    torch.testing.assert_close(got, expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(x)
    assert not list(tmp_path.rglob("*.airgraph"))


class Opaque:
    def __init__(self, held: Tensor) -> None:
        self.held = held


def test_side_effects_are_refused_and_happen_once(tmp_path: Path) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0
            self.seen: list[Tensor] = []

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            self.seen.append(x * 2)
            return x + 1

    model = Counting()
    with pytest.raises(CacheError, match="the function changes L\\['self'\\]"):
        cached(model.forward, tmp_path)(torch.ones(2))
    assert model.calls == 0 and model.seen == []
    call = cached(model.forward, tmp_path, strict=False)
    with pytest.warns(UserWarning, match="changes"):
        call(torch.ones(2))
    assert model.calls == 1
    torch.testing.assert_close(model.seen, [torch.full((2,), 2.0)])


def test_a_flag_that_is_set_and_set_back_is_no_side_effect(tmp_path: Path) -> None:
    class Flagged(nn.Module):
        busy = False

        def __init__(self) -> None:
            super().__init__()
            self.busy = False

        def forward(self, x: Tensor) -> Tensor:
            self.busy = True
            y = self.inner(x)
            self.busy = False
            return y

        def inner(self, x: Tensor) -> Tensor:
            return x * 2 if self.busy else x

    model = Flagged()
    assert cached(model.forward, tmp_path)(torch.ones(2)).tolist() == [2.0, 2.0]
    assert model.busy is False


def test_the_function_s_own_errors_come_through_and_leave_it_usable(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path, strict=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises((RuntimeError, torch._dynamo.exc.TorchDynamoException), match="8"):
            call(torch.randn(4, 9))
        with pytest.raises(TypeError, match="missing"):
            call()
        with pytest.raises(TypeError, match="unexpected"):
            call(torch.randn(4, 8), other=1)
        x = torch.randn(4, 8)
        torch.testing.assert_close(call(x), model(x).detach())
    assert len(call.files) == 1


def test_with_torch_compile_switched_off_the_function_runs_once(tmp_path: Path) -> None:
    cache = torch.zeros(2)

    def add(cache: Tensor) -> Tensor:
        cache.add_(1)
        return cache * 2

    call = cached(add, tmp_path, strict=False)
    with torch.compiler.set_stance("force_eager"), pytest.warns(UserWarning, match="switched off"):
        assert call(cache).tolist() == [2.0, 2.0]
    assert cache.tolist() == [1.0, 1.0]


def test_options_apply_as_through_torch_compile(tmp_path: Path) -> None:
    pool = airgraph.graph_pool_handle("cpu")
    model = Mlp()
    x = torch.randn(4, 8)
    first = cached(model.forward, tmp_path, options={"use_graph_pool": pool, "clone_output": True})
    second = cached(model.forward, tmp_path, config=airgraph.Options(use_graph_pool=pool))
    torch.testing.assert_close(first(x), second(x))
    assert {row["pool"] for row in report()["graphs"]} == {pool.id}
    eager = cached(model.forward, tmp_path, options={"force_eager": True})
    torch.testing.assert_close(eager(x), model(x).detach())
    assert counters()["eager_calls"] == 1
    with pytest.raises(OptionError, match="both"):
        cached(model.forward, tmp_path, options={}, config={})
    with pytest.raises(OptionError, match="unknown option"):
        cached(model.forward, tmp_path, options={"clone_outputs": True})
    with pytest.raises(OptionError, match=r"got Mlp. Pass its forward method"):
        cached(model, tmp_path)


def test_outputs_held_by_the_caller_survive(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path)
    inputs = [torch.randn(4, 8) for _ in range(3)]
    held = [call(x) for x in inputs]
    for x, out in zip(inputs, held, strict=True):
        torch.testing.assert_close(out, model(x).detach())


def test_replays_are_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Decoder()
    cached(model.step, tmp_path)(torch.randn(1, 8), torch.zeros(4, 8), torch.tensor([2]))
    call = cached(model.step, tmp_path, options={"verify_every": 1})
    x, cache, row = torch.randn(1, 8), torch.zeros(4, 8), torch.tensor([2])
    call(x, cache, row)
    # A wrong kernel, of which only the captured graph knows.
    (entry,) = call._entries
    (graph,) = entry._graphed._graphs.values()
    run = graph.device_graph.run
    object.__setattr__(graph, "device_graph", _Wrong(graph.device_graph, run))
    with pytest.raises(ReplayError, match=r"differs from eager: output 0 by"):
        call(x, cache, row)


class _Wrong:
    def __init__(self, graph: Any, run: Callable[..., Any]) -> None:
        self._graph, self._run = graph, run

    def run(self, args: list[Any]) -> Any:
        return [out + 1 for out in self._run(args)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)


def test_threads_share_it(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        try:
            for _ in range(30):
                x = torch.randn(2 + seed % 3, 8, generator=generator)
                torch.testing.assert_close(call(x), model(x).detach())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(call.files) == 1


def test_a_model_that_is_dropped_is_freed(tmp_path: Path) -> None:
    for _ in range(2):
        model = Mlp()
        model.cached = cached(model.forward, tmp_path)
        model.cached(torch.randn(4, 8))
        alive = weakref.ref(model)
        del model
        gc.collect()
        assert alive() is None


def test_a_copied_model_calls_its_own_weights(tmp_path: Path) -> None:
    model = Mlp()
    model.cached = cached(model.forward, tmp_path)
    x = torch.randn(4, 8)
    model.cached(x)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.inner.weight.mul_(2)
    torch.testing.assert_close(other.cached(x), other(x).detach())
    torch.testing.assert_close(model.cached(x), model(x).detach())


def test_inside_another_compiled_function_it_is_traced_as_what_it_wraps(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path)
    x = torch.randn(4, 8)
    call(x)
    with torch.no_grad():
        outer = torch.compile(lambda x: call(x) + 1, backend="eager")
        torch.testing.assert_close(outer(x), model(x) + 1)


def test_warming_up_executes_nothing(tmp_path: Path) -> None:
    model = Decoder()
    step = cached(model.step, tmp_path)
    x, cache, row = torch.randn(1, 8), torch.zeros(4, 8), torch.tensor([2])
    airgraph.warmup(step, [(x, cache, row)])
    assert not cache.any() and counters()["captures"] == 1 and counters()["replays"] == 0
    expected = torch.zeros(4, 8)
    torch.testing.assert_close(step(x, cache, row), model.step(x, expected, row))


def test_decompositions_are_applied(tmp_path: Path) -> None:
    from torch._decomp import get_decompositions

    table = get_decompositions([torch.ops.aten.silu.default])

    def act(x: Tensor) -> Tensor:
        return torch.nn.functional.silu(x)

    call = cached(act, tmp_path, custom_decompositions=table)
    x = torch.randn(4)
    torch.testing.assert_close(call(x), act(x))
    assert "silu" not in airgraph.inference.readable_cache(call.files[0], print_output=False).split("def program")[1]
    plain = cached(act, tmp_path)
    plain(x)
    assert plain.files[0].parent != call.files[0].parent


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.layers = nn.ModuleList([nn.Linear(8, 8)])
        self.factor = 2.0
        self.act = torch.relu

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.inner(x)) * self.factor
        for layer in self.layers:
            x = layer(x)
        return x


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8).requires_grad_(False)

    def step(self, x: Tensor, cache: Tensor, row: Tensor) -> Tensor:
        cache.index_copy_(0, row, self.project(x))
        return torch.softmax(cache, -1).sum(0)


def _must_not_be_called(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("torch.compile was called")
