"""LayerNorm and softmax of few numbers by kernels of our own, against eager and float64."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from own_calls import by_engine, further_off, lying, values
from torch import Tensor

from airgraph.runtime.engine.loading import engine_status

pytestmark = pytest.mark.skipif(not engine_status().loaded, reason="the native engine is not here")

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
EPS = 1e-5
# Of one lane and of part of a vector, of one stretch of a sum and of several.
SIZES = (1, 5, 64, 577, 2048, 9000)
NORM = torch.ops.aten.native_layer_norm.default


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def normed(x: Tensor, weight: Tensor | None, bias: Tensor | None, size: int, served: str = "own") -> list[Tensor]:
    """LayerNorm, mean and reciprocal deviation of the last `size` numbers by the engine, served as said."""
    outs = tuple(map(torch.empty_like, NORM(x, [size], weight, bias, EPS)))
    assert by_engine("aten::native_layer_norm", x, [size], weight, bias, EPS, out=outs) == served
    return list(outs)


def softened(x: Tensor, served: str = "own") -> Tensor:
    out = torch.empty(x.shape, dtype=x.dtype)
    assert by_engine("aten::_softmax", x, -1, False, out=out) == served
    return out


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("params", ["both", "weight", "none"])
@pytest.mark.parametrize("offset", [0, 1000])
def test_layer_norm_is_not_further_from_float64_than_eagers(params: str, offset: int, dtype: torch.dtype) -> None:
    """Beside a large mean, too, where a variance from squares is lost."""
    generator = torch.Generator().manual_seed(1)
    ours, theirs, exact = [], [], []
    for size in SIZES[1:]:
        for _ in range(5):
            x = values(3, size, dtype=torch.float32, generator=generator).add(offset).to(dtype)
            weight = None if params == "none" else values(size, dtype=dtype, generator=generator)
            bias = values(size, dtype=dtype, generator=generator) if params == "both" else None
            in_double = (None if each is None else each.double() for each in (x, weight, bias))
            wide, wide_weight, wide_bias = in_double
            assert wide is not None
            ours.append(normed(x, weight, bias, size))
            theirs.append(NORM(x, [size], weight, bias, EPS))
            exact.append(NORM(wide, [size], wide_weight, wide_bias, EPS))
    for found, eagers, right in zip(*(zip(*each, strict=True) for each in (ours, theirs, exact)), strict=True):
        assert further_off(list(found), list(eagers), list(right)) <= 1.02


@pytest.mark.parametrize("size", [100, 300, 2048])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_sum_that_float32_cannot_hold_is_no_loss(dtype: torch.dtype, size: int) -> None:
    """Of numbers that it can hold: eager's way comes to their mean without their sum."""
    x = torch.full((3, size), 3e38, dtype=dtype)
    x[1, ::2] = -2e38
    x[2] = torch.linspace(1e36, 2e38, size)
    out, mean, _ = normed(x, None, None, size)
    torch.testing.assert_close(mean.double().flatten(), x.double().mean(-1), rtol=1e-2, atol=0, check_dtype=False)
    assert out.isfinite().all() and (out[0] == 0).all()
    mean_of_row = torch.empty(3, dtype=dtype)
    assert by_engine("aten::mean", x, [-1], False, out=mean_of_row, overload="dim") == "own"
    torch.testing.assert_close(mean_of_row.double(), x.double().mean(-1), rtol=1e-2, atol=0)
    # What is not finite itself stays so.
    x[0, size // 2], x[1, 3] = math.inf, math.nan
    assert normed(x, None, None, size)[1].flatten()[:2].isfinite().sum() == 0


@pytest.mark.parametrize("size", [5, 16, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_variance_that_float32_cannot_hold_is_no_loss(dtype: torch.dtype, size: int) -> None:
    x = torch.randn(5, size, dtype=torch.float64)
    x[0] *= 1e25
    x[1, size - 1] = 1e30
    x[2, 0] = -3e38
    # Even the distance from the mean is more than float32 holds.
    x[3] = 3e38
    x[3, size - 1] = -3e38
    x[4] = 3e38
    x[4, ::2] = -3e38
    x = x.to(dtype)
    weight, bias = torch.ones(size, dtype=dtype), torch.full((size,), 0.5, dtype=dtype)
    out, _, rstd = normed(x, weight, bias, size)
    exact, _, exact_rstd = NORM(x.double(), [size], weight.double(), bias.double(), EPS)
    near = {"rtol": 1e-5, "atol": 1e-5} if dtype is torch.float32 else {"rtol": 1e-2, "atol": 1e-2}
    torch.testing.assert_close(out.double(), exact, **near)
    torch.testing.assert_close(rstd.double(), exact_rstd, rtol=near["rtol"], atol=1e-44)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("scale", [1, 10])
def test_softmax_is_not_further_from_float64_than_eagers(scale: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(2)
    ours, theirs, exact = [], [], []
    for size in SIZES:
        for _ in range(5):
            x = values(2, size, dtype=torch.float32, generator=generator).mul(scale).to(dtype)
            ours.append(softened(x))
            theirs.append(x.softmax(-1))
            exact.append(x.double().softmax(-1))
    assert further_off(ours, theirs, exact) <= 1.02


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("size", [3, 16, 37])
def test_what_is_no_common_number_is_eagers(size: int, dtype: torch.dtype) -> None:
    rows = [torch.randn(size, generator=torch.Generator().manual_seed(size)) for _ in range(6)]
    rows[0][size // 2] = math.nan
    rows[1][0] = math.inf
    rows[2][-1] = -math.inf
    rows[3].fill_(-math.inf)
    rows[4].fill_(0)
    rows[5][:] = torch.tensor(-200.0)
    rows[5][-1] = 0
    x = torch.stack(rows).to(dtype)
    torch.testing.assert_close(softened(x), x.softmax(-1), equal_nan=True)
    torch.testing.assert_close(normed(x, None, None, size)[0], NORM(x, [size], None, None, EPS)[0], equal_nan=True)


@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    how=st.tuples(*[st.sampled_from(["dense", "offset", "gaps"])] * 3),
    params=st.sampled_from(["none", "weight", "bias", "both"]),
    dtype=st.sampled_from(FLOATS),
    trailing=st.integers(1, 4),
    seed=st.integers(0, 2**20),
)
def test_wherever_their_tensors_lie(
    shape: list[int], how: tuple[str, ...], params: str, dtype: torch.dtype, trailing: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = lying(values(*shape, dtype=dtype, generator=generator), how[0])
    normalised = shape[-trailing:]
    weight, bias = (
        lying(values(*normalised, dtype=dtype, generator=generator), way) if params in (name, "both") else None
        for name, way in (("weight", how[1]), ("bias", how[2]))
    )
    given_ = (x, normalised, weight, bias, EPS)
    outs = tuple(map(torch.empty_like, NORM(*given_)))
    # What has gaps between its rows may be ATen's.
    is_ours = by_engine("aten::native_layer_norm", *given_, out=outs) == "own"
    assert is_ours or "gaps" in how[:3]
    # Of one number nothing is left but what eager's rounding leaves, times the root of 1 / eps.
    tolerance = {"rtol": 1e-5 if dtype is torch.float32 else 0.02, "atol": 1e-4}
    slack = 1 if weight is None else max(1.0, float(weight.abs().max()))
    near = {**tolerance, "atol": slack * (1e-4 if dtype is torch.float32 else torch.finfo(dtype).eps * 4)}
    torch.testing.assert_close(list(outs), list(NORM(*given_)), **near)
    # ATen's writes no gaps, and nobody asks it to.
    out = lying(torch.zeros(shape, dtype=dtype), "offset")
    memory = torch.empty(0, dtype=dtype).set_(out.untyped_storage())
    before = memory.clone()
    is_ours = by_engine("aten::_softmax", x, -1, False, out=out) == "own"
    assert is_ours or how[0] == "gaps"
    torch.testing.assert_close(out, x.softmax(-1), **tolerance)
    out.zero_()
    assert torch.equal(memory, before), "it wrote beside its result"


def test_in_place() -> None:
    x = torch.randn(3, 37)
    expected = softened(x)
    by_engine("aten::_softmax", x, -1, False, out=x)
    assert torch.equal(x, expected)


@pytest.mark.parametrize("x", [torch.randn(9, 4000), torch.randn(4, 6).t(), torch.randn(3, 4).double()])
def test_what_they_do_not_serve_is_eagers(x: Tensor) -> None:
    out = torch.empty_like(x.softmax(-1))
    assert by_engine("aten::_softmax", x, -1, False, out=out) != "own"
    assert torch.equal(out, x.softmax(-1))
    expected = NORM(x, [x.shape[-1]], None, None, EPS)
    outs = tuple(map(torch.empty_like, expected))
    assert by_engine("aten::native_layer_norm", x, [x.shape[-1]], None, None, EPS, out=outs) != "own"
    assert all(map(torch.equal, outs, expected))


def test_what_is_worth_two_threads_is_eagers() -> None:
    torch.set_num_threads(2)
    softened(torch.randn(10, 400))
    x = torch.randn(11, 400)
    assert torch.equal(softened(x, served="typed"), x.softmax(-1))


def test_softmax_along_other_dimensions_is_eagers() -> None:
    x = torch.randn(3, 4)
    out = torch.empty(3, 4)
    assert by_engine("aten::_softmax", x, 0, False, out=out) != "own"
    assert torch.equal(out, x.softmax(0))


def test_a_weight_of_another_type_is_eagers() -> None:
    x, weight = torch.randn(3, 8).bfloat16(), torch.randn(8)
    expected = NORM(x, [8], weight, None, EPS)
    outs = tuple(map(torch.empty_like, expected))
    assert by_engine("aten::native_layer_norm", x, [8], weight, None, EPS, out=outs) != "own"
    assert all(map(torch.equal, outs, expected))


def test_exact_kernels_are_eagers() -> None:
    x = torch.randn(2, 37)
    out = torch.empty(2, 37)
    assert by_engine("aten::_softmax", x, -1, False, out=out, exact=True) != "own"
    assert torch.equal(out, x.softmax(-1))
