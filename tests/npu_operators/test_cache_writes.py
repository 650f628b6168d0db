"""What is put into caches is what a loop over the tokens would put there, in place."""

from functools import partial

import pytest
import torch
from agreement import assert_agrees, assert_captured
from latent_attention import kv_arguments, kv_reference
from torch import Tensor

import airgraph
from airgraph.errors import UnsupportedArgument

_npu = torch.ops.npu
_TYPES = [torch.float32, torch.float16, torch.bfloat16]


def _scattered(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    flat = updates.reshape(-1, *updates.shape[indices.dim() - 1 :])
    for place, value in zip(indices.reshape(-1, indices.shape[-1]).tolist(), flat, strict=True):
        x[tuple(place)] = value
    return x


_INDICES = [torch.tensor([[2], [0]]), torch.tensor([[[2, 1], [0, 3]]]).int(), torch.tensor([[1, 2, 0], [0, 0, 4]])]


@pytest.mark.parametrize("dtype", [*_TYPES, torch.int8, torch.int64, torch.bool])
@pytest.mark.parametrize("indices", _INDICES, ids=["rows", "parts", "elements"])
def test_scatter_nd_update(indices: Tensor, dtype: torch.dtype) -> None:
    x = torch.randn(3, 4, 5).mul(9).to(dtype)
    updates = torch.randn(*indices.shape[:-1], *x.shape[indices.shape[-1] :]).mul(9).to(dtype)
    assert_agrees(_npu.npu_scatter_nd_update, lambda x, i, u: _scattered(x.clone(), i, u), x, indices, updates)
    assert_agrees(_npu.npu_scatter_nd_update_, _scattered, x, indices, updates)
    written = x.clone()
    assert _npu.npu_scatter_nd_update_(written, indices, updates) is written


def test_scatter_nd_update_writes_a_view_in_place() -> None:
    cache = torch.zeros(4, 6)
    _npu.npu_scatter_nd_update_(cache.t()[1:], torch.tensor([[0]]), torch.ones(1, 4))
    assert cache.t()[1].eq(1).all()
    assert cache.sum() == 4


def test_scatter_nd_update_is_captured_without_a_copy() -> None:
    def step(cache: Tensor, slots: Tensor, new: Tensor) -> Tensor:
        _npu.npu_scatter_nd_update_(cache, slots, new)
        return cache.sum(-1)

    cache, slots, new = torch.zeros(300, 40), torch.tensor([[1], [7]]), torch.ones(2, 40)
    assert_captured(step, cache, slots, new)
    report = airgraph.explain().to_dict()
    assert report["passes"]["input_inplace_pass"] == 1
    assert report["graphs"][-1]["copied_nbytes"] < cache.nbytes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.ones(3, 4), torch.tensor([1]), torch.ones(4)), "indices must be of at least 2 dimensions"),
        (
            (torch.ones(3, 4), torch.tensor([[1.0]]), torch.ones(1, 4)),
            "indices must be int32 or int64, got torch.float",
        ),
        ((torch.ones(3, 4), torch.tensor([[1]]), torch.ones(1, 3)), r"updates must be of shape \(1, 4\), got a tensor"),
        ((torch.ones(3, 4), torch.tensor([[1]]), torch.ones(1, 4).half()), "updates must be of input's type"),
    ],
)
def test_what_cannot_be_scattered_is_named(arguments: tuple[Tensor, ...], message: str) -> None:
    with pytest.raises(UnsupportedArgument, match=f"npu_scatter_nd_update: {message}"):
        _npu.npu_scatter_nd_update(*arguments)


def _into_caches(mode: str, *args: Tensor, **settings: object) -> tuple[Tensor, Tensor]:
    return _npu.npu_kv_rmsnorm_rope_cache_v2(*args, cache_mode=mode, **settings)


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("mode", ["Norm", "PA", "PA_BNSD"])
def test_kv_rmsnorm_rope_cache(mode: str, dtype: torch.dtype) -> None:
    call, reference = partial(_into_caches, mode, is_output_kv=True), partial(kv_reference, mode)
    assert_agrees(call, reference, *kv_arguments(mode, dtype), slack=2)


def test_kv_rmsnorm_rope_cache_gives_zeros_where_no_output_is_asked_for() -> None:
    arguments = kv_arguments("Norm")
    assert_agrees(partial(_into_caches, "Norm"), partial(kv_reference, "Norm", output=False), *arguments)
    call = partial(_into_caches, "Norm", epsilon=0.5)
    assert_agrees(call, partial(kv_reference, "Norm", output=False, epsilon=0.5), *arguments)


def test_a_cache_is_left_alone_where_every_token_is_left_out() -> None:
    arguments = kv_arguments("PA")
    arguments[4].fill_(-1)
    before = [each.clone() for each in arguments]
    _into_caches("PA", *arguments)
    assert all(torch.equal(a, b) for a, b in zip(arguments, before, strict=True))


def test_a_cache_that_is_part_of_a_larger_one_is_written_there() -> None:
    kv, gamma, cos, sin, index, k_cache, _ = kv_arguments("PA")
    whole = torch.randn(*k_cache.shape[:-1], 10)
    expected = whole.clone()
    k, ckv = whole.split([4, 6], -1)
    _into_caches("PA", kv, gamma, cos, sin, index, k, ckv)
    kv_reference("PA", kv, gamma, cos, sin, index, *expected.split([4, 6], -1))
    torch.testing.assert_close(whole, expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cache_mode": "PA_NZ"}, "cache_mode must be 'Norm', 'PA' or 'PA_BNSD', got 'PA_NZ'"),
        ({"k_rope_scale": torch.ones(4)}, "k_rope_scale must be None, all that is done here, got a tensor of shape"),
        ({"ckv_cache_dtype": 1}, "ckv_cache_dtype must be None, all that is done here, got 1"),
    ],
)
def test_settings_of_caches_that_are_not_done_are_named(settings: dict, message: str) -> None:
    with pytest.raises(UnsupportedArgument, match=f"npu_kv_rmsnorm_rope_cache_v2: {message}"):
        _npu.npu_kv_rmsnorm_rope_cache_v2(*kv_arguments("Norm"), **settings)


@pytest.mark.parametrize(
    ("position", "name"), [(0, "kv"), (1, "gamma"), (2, "cos"), (4, "index"), (5, "k_cache"), (6, "ckv_cache")]
)
def test_an_argument_of_another_shape_is_named(position: int, name: str) -> None:
    arguments = list(kv_arguments("Norm"))
    arguments[position] = arguments[position][None]
    with pytest.raises(UnsupportedArgument, match=f"npu_kv_rmsnorm_rope_cache_v2: {name} must be"):
        _npu.npu_kv_rmsnorm_rope_cache_v2(*arguments)
