"""A cached function is traced once, in whatever process, and called as one from torch.compile is."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import threading
import types
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cached_functions import Decoder, Mlp, cached
from reports import counters, report
from torch import Tensor, nn

import airgraph
from airgraph.errors import OptionError, ReplayError


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


def test_by_default_of_torch_compile_what_varied_once_is_dynamic(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path, dynamic=None)
    for size in (4, 7, 9, 12, 4):
        x = torch.randn(size, 8)
        torch.testing.assert_close(call(x), model(x).detach())
    assert len(call.files) == 2


def test_a_relative_folder_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call = cached(Mlp().forward, Path("graphs"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    call(torch.randn(4, 8))
    assert call.files[0].is_relative_to(tmp_path / "graphs")


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
    with pytest.raises(OptionError, match=r"got a method that is no function of Python's but a partial"):
        cached(types.MethodType(functools.partial(Mlp.forward), model), tmp_path)


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
    (graph,) = entry._graphed.captures
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


def _must_not_be_called(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("torch.compile was called")


def test_functions_are_traced_in_several_threads_at_once(tmp_path: Path) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x + 1

    models = [Counting() for _ in range(4)]
    quiet = [cached(lambda x, n=n: x * n, tmp_path / str(n), strict=False) for n in range(4)]
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            call = cached(models[index].forward, tmp_path / "models", strict=False)
            for _ in range(3):
                assert call(torch.ones(2)).tolist() == [2.0, 2.0]
                assert quiet[index](torch.ones(2)).tolist() == [float(index)] * 2
        except BaseException as error:
            failures.append(error)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
    assert [model.calls for model in models] == [3] * 4


class Decorated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.step_cached: Any = None

    @torch.no_grad()
    def step(self, x: Tensor) -> Tensor:
        return self.inner(x)


def test_methods_under_no_grad_and_models_that_are_pickled(tmp_path: Path) -> None:
    model = Decorated()
    model.step_cached = cached(model.step, tmp_path)
    x = torch.randn(2, 4)
    torch.testing.assert_close(model.step_cached(x), model.step(x))
    other = pickle.loads(pickle.dumps(model))
    with torch.no_grad():
        other.inner.weight.mul_(2)
    torch.testing.assert_close(other.step_cached(x), other.step(x))
    torch.testing.assert_close(model.step_cached(x), model.step(x))


def test_decompositions_that_close_over_different_numbers(tmp_path: Path) -> None:
    def decomposition(number: float) -> Callable[..., Tensor]:
        def silu(x: Tensor) -> Tensor:
            return x * number

        return silu

    def act(x: Tensor) -> Tensor:
        return torch.nn.functional.silu(x)

    x = torch.ones(2)
    for number in (2.0, 3.0):
        for made in (decomposition(number), functools.partial(_scaled, number=number)):
            call = cached(act, tmp_path, custom_decompositions={torch.ops.aten.silu.default: made})
            assert call(x).tolist() == [number] * 2


def _scaled(x: Tensor, number: float) -> Tensor:
    return x * number
