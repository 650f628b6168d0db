"""Attention of few queries by the kernel of our own, against float64 and the flash kernel."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from own_calls import by_engine, further_off, lying, values
from torch import Tensor

from airgraph.runtime.engine.loading import engine_status

pytestmark = pytest.mark.skipif(not engine_status().loaded, reason="the native engine is not here")

FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def exactly(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    groups = query.shape[1] // key.shape[1]
    key, value = (each.double().repeat_interleave(groups, 1) for each in (key, value))
    scores = query.double() @ key.transpose(-1, -2) * scale
    scores = scores if mask is None else scores + mask.double()
    weights = scores.softmax(-1)
    return weights.nan_to_num() @ value if mask is not None else weights @ value


def eagerly(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    return torch.ops.airgraph.decode_attention(query, key, value, mask, scale)


def ours(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    out = torch.empty_like(query)
    assert by_engine("airgraph::decode_attention", query, key, value, mask, scale, out=out) == "own"
    return out


def mask_of(kind: str, batch: int, queries: int, length: int, dtype: torch.dtype) -> Tensor | None:
    if kind == "none":
        return None
    mask = torch.zeros(batch if kind == "each" else 1, 1, queries, length)
    if kind == "length":
        mask[..., max(1, length // 3) :] = -math.inf
    elif kind == "holes":
        mask[..., ::2] = -math.inf
        mask[..., length - 1] = 0
    elif kind == "each":
        mask += torch.randn(mask.shape)
    return mask.to(dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("kind", ["none", "length", "holes", "each"])
def test_it_is_not_further_from_float64_than_eager(kind: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    found, theirs, exact = [], [], []
    for batch, heads, shared, queries, length, size in [
        (1, 9, 3, 1, 256, 64),
        (2, 4, 4, 1, 17, 20),
        (1, 8, 1, 2, 300, 128),
        (1, 2, 2, 1, 1, 8),
        (1, 6, 2, 1, 1000, 40),
    ]:
        query = values(batch, heads, queries, size, dtype=dtype, generator=generator)
        key, value = (values(batch, shared, length, size, dtype=dtype, generator=generator) for _ in range(2))
        given_ = (query, key, value, mask_of(kind, batch, queries, length, dtype), size**-0.5)
        found.append(ours(*given_))
        theirs.append(eagerly(*given_))
        exact.append(exactly(*given_))
    assert further_off(found, theirs, exact) <= 1.02


@given(
    batch=st.integers(1, 2),
    shared=st.integers(1, 3),
    groups=st.integers(1, 5),
    queries=st.integers(1, 4),
    length=st.integers(1, 70),
    size=st.integers(1, 70),
    dtype=st.sampled_from(FLOATS),
    how=st.tuples(*[st.sampled_from(["dense", "offset", "gaps"])] * 3),
    kind=st.sampled_from(["none", "length", "holes", "each"]),
    seed=st.integers(0, 2**20),
)
def test_whatever_its_tensors_are(
    batch: int,
    shared: int,
    groups: int,
    queries: int,
    length: int,
    size: int,
    dtype: torch.dtype,
    how: tuple[str, str, str],
    kind: str,
    seed: int,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    query = lying(values(batch, shared * groups, queries, size, dtype=dtype, generator=generator), how[0])
    key, value = (lying(values(batch, shared, length, size, dtype=dtype, generator=generator), how[i]) for i in (1, 2))
    given_ = (query, key, value, mask_of(kind, batch, queries, length, dtype), size**-0.5)
    torch.testing.assert_close(
        ours(*given_).double(), exactly(*given_), rtol=3 * torch.finfo(dtype).eps + 1e-5, atol=2e-5
    )


def test_where_nothing_may_be_seen_the_result_is_zero_as_of_the_flash_kernel() -> None:
    query, key = torch.randn(1, 2, 1, 8), torch.randn(1, 2, 9, 8)
    mask = torch.full((1, 1, 1, 9), -math.inf)
    given_ = (query, key, key, mask, 0.3)
    assert torch.equal(ours(*given_), torch.zeros_like(query)) and torch.equal(ours(*given_), eagerly(*given_))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_a_mask_hides_at_its_end_does_not_count(bad: float, dtype: torch.dtype) -> None:
    """As in a cache whose rows were not written yet."""
    query, key, value = (torch.randn(1, 4, rows, 16).to(dtype) for rows in (1, 24, 24))
    mask = torch.zeros(1, 1, 1, 24)
    mask[..., 9:] = -math.inf
    clean = ours(query, key, value, mask.to(dtype), 0.25)
    value[:, :, 9:] = bad
    key[:, :, 9:] = bad
    assert torch.equal(ours(query, key, value, mask.to(dtype), 0.25), clean)


@pytest.mark.parametrize("place", ["query", "key", "value"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_no_number_comes_through(place: str, bad: float) -> None:
    tensors = {"query": torch.randn(1, 2, 1, 8), "key": torch.randn(1, 2, 20, 8), "value": torch.randn(1, 2, 20, 8)}
    tensors[place][0, 1, 0, 3] = bad
    given_ = (*tensors.values(), None, 0.3)
    assert torch.equal(ours(*given_).isfinite(), exactly(*given_).isfinite())


def test_large_scores_do_not_overflow() -> None:
    query, key = torch.full((1, 1, 1, 4), 200.0), torch.randn(1, 1, 33, 4) * 200
    given_ = (query, key, key, None, 1.0)
    torch.testing.assert_close(ours(*given_).double(), exactly(*given_), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_number_of_threads_does_not_change_a_bit(threads: int) -> None:
    generator = torch.Generator().manual_seed(0)
    query = values(1, 9, 1, 64, dtype=torch.float32, generator=generator)
    key, value = (values(1, 3, 500, 64, dtype=torch.float32, generator=generator) for _ in range(2))
    before, found = torch.get_num_threads(), []
    for count in (1, threads):
        torch.set_num_threads(count)
        try:
            found.append(ours(query, key, value, None, 0.125))
        finally:
            torch.set_num_threads(before)
    assert torch.equal(*found)
