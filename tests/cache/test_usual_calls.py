"""Calls that follow many like them: what they no longer look at one by one is seen when it changes all the same."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from cached_functions import MANY, Decoder, Mlp, cached, settled
from torch import Tensor, nn

from airgraph.cache.cached_function import CachedFunction
from airgraph.errors import CacheError, ReplayError


def _called_by_threads(call: CachedFunction, model: nn.Module, rows: tuple[int, ...]) -> None:
    """By one for each number of rows, many times; results are the model's."""

    def many(rows: int) -> None:
        for _ in range(100):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(call(x), model(x).detach())

    with ThreadPoolExecutor(len(rows)) as threads:
        # Raises what a thread raised.
        assert list(threads.map(many, rows)) == [None] * len(rows)


class _Weight(nn.Parameter):
    pass


def _grown(weight: Tensor) -> None:
    """Its memory moves, and nothing else does."""
    kept = weight.detach().clone()
    weight.untyped_storage().resize_(1 << 20)
    weight.data.copy_(kept)


def _given_an_offset(weight: Tensor) -> None:
    """Over its own storage still, three elements further on."""
    storage = weight.untyped_storage()
    storage.resize_(storage.nbytes() + 12)
    with torch.no_grad():
        weight.set_(storage, 3, weight.shape, weight.stride())
        # What the storage grew by is whatever lay there, at times not a number, which equals nothing.
        weight[-1, -3:] = 1.0


def _turned(weight: Tensor) -> None:
    """In place, over the same memory."""
    with torch.no_grad():
        weight.t_()


_CHANGES: dict[str, Callable[[nn.Linear], Any]] = {
    "values": lambda layer: layer.weight.data.mul_(2),
    "memory": lambda layer: setattr(layer.weight, "data", torch.randn(8, 8)),
    "memory of the storage": lambda layer: _grown(layer.weight),
    "offset": lambda layer: _given_an_offset(layer.weight),
    "strides": lambda layer: _turned(layer.weight),
    "strides of memory elsewhere": lambda layer: setattr(layer.weight, "data", torch.randn(8, 8).t()),
    "history": lambda layer: layer.weight.requires_grad_(False),
    "another tensor": lambda layer: setattr(layer, "weight", nn.Parameter(torch.randn(8, 8))),
    "no bias": lambda layer: setattr(layer, "bias", None),
}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
def test_what_changes_in_a_weight_after_many_calls(change: Callable[[nn.Linear], Any], tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path)
    x = torch.randn(4, 8)
    settled(call, x)
    change(model.inner)
    for _ in range(MANY):
        torch.testing.assert_close(call(x), model(x).detach())
    settled(call, x)


def test_a_weight_that_is_exchanged_after_many_calls(tmp_path: Path) -> None:
    cached(Mlp().forward, tmp_path)(torch.randn(4, 8))
    # Not traced in this process, or Dynamo's references to the weight would keep it as it is.
    model = Mlp()
    call = cached(model.forward, tmp_path)
    x = torch.randn(4, 8)
    settled(call, x)
    assert call.counts().traces == 0
    others = [nn.Parameter(torch.randn(8, 8)) for _ in range(3)]
    # The first exchanges dicts and classes too.
    swaps = (torch.utils.swap_tensors, torch._C._swap_tensor_impl, torch._C._swap_tensor_impl)
    for swap, other in zip(swaps, others, strict=True):
        swap(model.inner.weight, other)
        for _ in range(MANY):
            torch.testing.assert_close(call(x), model(x).detach())


def test_a_weight_of_another_class_after_many_calls(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path)
    x = torch.randn(4, 8)
    settled(call, x)
    model.inner.weight.__class__ = _Weight
    with pytest.raises(CacheError, match="got _Weight"):
        call(x)
    model.inner.weight.__class__ = nn.Parameter
    settled(call, x)


def test_a_weight_of_another_dtype_after_many_calls(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path)
    x = torch.randn(4, 8)
    settled(call, x)
    model.double()
    torch.testing.assert_close(call(x.double()), model(x.double()).detach())


def test_a_step_that_writes_its_cache_after_many_calls(tmp_path: Path) -> None:
    model = Decoder()
    call = cached(model.step, tmp_path)
    caches = [torch.zeros(4, 8) for _ in range(2)]
    for step in range(12):
        x, row = torch.randn(1, 8), torch.tensor([step % 4])
        right = model.step(x, caches[1], row)
        torch.testing.assert_close(call(x, caches[0], row), right)
        torch.testing.assert_close(caches[0], caches[1])
        # The cache lies elsewhere for the last calls, and its weights do not.
        caches[0] = caches[0].clone() if step > 7 else caches[0]


def test_shapes_that_take_turns(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path)
    inputs = [torch.randn(rows, 8) for rows in (4, 4, 4, 4, 5, 4, 5, 4, 4, 4, 4)]
    for x in inputs:
        torch.testing.assert_close(call(x), model(x).detach())
    model.inner.weight.data = torch.randn(8, 8)
    for x in inputs:
        torch.testing.assert_close(call(x), model(x).detach())


def test_arguments_are_not_kept_alive(tmp_path: Path) -> None:
    call = cached(Mlp().forward, tmp_path)
    x = torch.randn(4, 8)
    settled(call, x)
    alive = weakref.ref(x)
    del x
    gc.collect()
    assert alive() is None


def test_a_function_and_its_graphs_can_be_collected(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path)
    settled(call, torch.randn(4, 8))
    alive = [weakref.ref(each) for each in (call, model, model.inner.weight)]
    del call, model
    gc.collect()
    assert [each() for each in alive] == [None] * 3


def test_a_weight_that_moves_away_and_back_between_calls_of_two_graphs(tmp_path: Path) -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
            x = self.inner(x)
            return x if mask is None else x * mask

    model = Masked()
    call = cached(model.forward, tmp_path)
    x, mask = torch.randn(4, 8), torch.randn(8)

    def check(*given: Any) -> None:
        torch.testing.assert_close(call(*given), model(*given).detach())

    for _ in range(MANY):
        check(x, None)
    for _ in range(MANY):
        check(x, mask)
    check(x, None)
    before = model.inner.weight.data
    # The graph of the mask is pointed at it by a call that does not go through its door.
    model.inner.weight.data = torch.randn(8, 8)
    check(x, mask)
    model.inner.weight.data = before
    for _ in range(3):
        check(x, mask)


def test_a_weight_of_many_dimensions_that_is_resized(tmp_path: Path) -> None:
    class Held(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("held", torch.randn(2, 3, 1, 1, 1, 4))

        def forward(self, x: Tensor) -> Tensor:
            held: Any = self.held
            return held.sum((1, 2, 3, 4)) * x

    model = Held()
    call = cached(model.forward, tmp_path)
    x = torch.randn(4)
    settled(call, x)
    held: Any = model.held
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        held.resize_(3, 2, 1, 1, 1, 4)
    for _ in range(MANY):
        torch.testing.assert_close(call(x), model(x))


def test_calls_of_graphs_with_pools_of_their_own(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path, options={"reuse_graph_pool_in_same_fx": False})
    _called_by_threads(call, model, (3, 4, 5))


def test_calls_of_several_threads(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path)
    settled(call, torch.randn(4, 8))
    _called_by_threads(call, model, (4, 4, 4, 4))


@torch.library.custom_op("airgraph_usual_calls::fails_at_zero", mutates_args=())
def fails_at_zero(x: Tensor) -> Tensor:
    if not x.any():
        raise ValueError("all zero")
    return x + 1


@fails_at_zero.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def test_a_replay_that_fails_after_many_calls(tmp_path: Path) -> None:
    def shifted(x: Tensor) -> Tensor:
        return fails_at_zero(x * 2)

    call = cached(shifted, tmp_path)
    x = torch.ones(3)
    settled(call, x)
    with pytest.raises(ReplayError, match=r"fails_at_zero.*all zero") as raised:
        call(torch.zeros(3))
    assert raised.value.__cause__ is not None
    torch.testing.assert_close(call(x), shifted(x))
