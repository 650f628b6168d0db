"""Products with integers by kernels of our own: of int8 with int8, and with int8 that has scales for groups."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from own_calls import by_engine, further_off, lying, values
from torch import Tensor

from airgraph.program.own_operators import GROUPED_MM
from airgraph.runtime.engine.loading import engine_status

pytestmark = pytest.mark.skipif(not engine_status().loaded, reason="the native engine is not here")

SIZES = [(1, 1), (3, 5), (16, 64), (33, 100), (7, 129), (192, 576), (600, 300)]


def whole(*shape: int, seed: int = 0, low: int = -128, high: int = 128) -> Tensor:
    return torch.randint(low, high, shape, dtype=torch.int8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("how", ["dense", "offset", "gaps"])
def test_products_of_int8_are_exact(how: str, rows: int) -> None:
    for n, k in SIZES:
        left, right = lying(whole(rows, k), how), lying(whole(n, k, seed=1), how)
        out = lying(torch.zeros(rows, n, dtype=torch.int32), how)
        memory = torch.empty(0, dtype=torch.int32).set_(out.untyped_storage())
        before = memory.clone()
        assert by_engine("aten::_int_mm", left, right.t(), out=out) == "own"
        assert torch.equal(out.long(), left.long() @ right.long().t())
        out.zero_()
        assert torch.equal(memory, before), "it wrote beside its result"


def test_the_largest_sums_are_exact() -> None:
    left, right = torch.full((1, 65536), -128, dtype=torch.int8), torch.full((5, 65536), -128, dtype=torch.int8)
    out = torch.empty(1, 5, dtype=torch.int32)
    assert by_engine("aten::_int_mm", left, right.t(), out=out) == "own"
    assert out.unique().tolist() == [128 * 128 * 65536]


@pytest.mark.parametrize("what", ["rows", "rows of the matrix"])
def test_other_products_of_int8_are_eagers(what: str) -> None:
    left, right = whole(20 if what == "rows" else 2, 32), whole(40, 32)
    matrix = right.t() if what == "rows" else right.t().contiguous()
    out = torch.empty(left.shape[0], 40, dtype=torch.int32)
    assert by_engine("aten::_int_mm", left, matrix, out=out) != "own"
    assert torch.equal(out.long(), left.long() @ right.long().t())


def grouped(
    rows: int, n: int, k: int, groups: int, dtype: torch.dtype, *, with_zeros: bool
) -> tuple[Tensor | None, ...]:
    generator = torch.Generator().manual_seed(rows)
    left = values(rows, k, dtype=dtype, generator=generator)
    scale = (torch.rand(n, groups, generator=generator) * 0.1 + 0.01).to(dtype)
    return left, whole(n, k, low=-8, high=8), scale, whole(n, groups, low=-8, high=8) if with_zeros else None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("with_zeros", [True, False], ids=["zeros", "no zeros"])
def test_groups_are_not_further_from_float64_than_eager(with_zeros: bool, rows: int, dtype: torch.dtype) -> None:
    ours, theirs, exact = [], [], []
    for n, k, groups in [(1, 4, 1), (5, 96, 3), (70, 64, 2), (33, 100, 10), (200, 576, 18), (9, 77, 7)]:
        args = grouped(rows, n, k, groups, dtype, with_zeros=with_zeros)
        out = torch.empty(rows, n, dtype=dtype)
        assert by_engine("airgraph::grouped_mm", *args, out=out) == "own"
        ours.append(out)
        theirs.append(GROUPED_MM(*args))
        doubles = [None if each is None else each if each.dtype is torch.int8 else each.double() for each in args]
        exact.append(GROUPED_MM(*doubles))
    assert further_off(ours, theirs, exact) <= 1.02


@given(
    rows=st.integers(1, 8),
    n=st.integers(1, 90),
    groups=st.integers(1, 12),
    of_group=st.integers(1, 70),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    has_zeros=st.booleans(),
    has_bias=st.booleans(),
    transposed=st.booleans(),
    how=st.tuples(*[st.sampled_from(["dense", "offset", "gaps"])] * 2, *[st.sampled_from(["dense", "offset"])] * 4),
    seed=st.integers(0, 2**20),
)
def test_wherever_the_tensors_of_groups_lie(
    rows: int,
    n: int,
    groups: int,
    of_group: int,
    dtype: torch.dtype,
    has_zeros: bool,
    has_bias: bool,
    transposed: bool,
    how: tuple[str, ...],
    seed: int,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    k = groups * of_group
    left = lying(values(rows, k, dtype=dtype, generator=generator), how[0])
    left = left.t().contiguous().t() if transposed else left
    out = lying(torch.zeros(rows, n, dtype=dtype), how[1])
    right = lying(whole(n, k, seed=seed), how[2])
    scale = lying((torch.rand(n, groups, generator=generator) + 0.01).to(dtype), how[3])
    zero = lying(whole(n, groups, seed=seed + 1), how[4]) if has_zeros else None
    bias = lying(values(n, dtype=dtype, generator=generator), how[5]) if has_bias else None
    memory = torch.empty(0, dtype=dtype).set_(out.untyped_storage())
    before = memory.clone()
    assert by_engine("airgraph::grouped_mm", left, right, scale, zero, bias, out=out) == "own"
    factors = scale.double().repeat_interleave(of_group, 1)
    shift = torch.zeros(1) if zero is None else zero.double().repeat_interleave(of_group, 1)
    exact = left.double() @ ((right.double() - shift) * factors).t()
    largest = left.double().abs() @ ((right.double().abs() + shift.abs()) * factors).t()
    if bias is not None:
        exact, largest = exact + bias.double(), largest + bias.double().abs()
    # One rounding of the result, and those of the sums.
    allowed = torch.finfo(dtype).eps * exact.abs() + largest * ((of_group + groups + 2) * 6e-8) + 6e-8
    is_number = exact.abs() <= torch.finfo(dtype).max
    assert bool(((out.double() - exact).abs() <= allowed)[is_number & out.isfinite()].all())
    assert torch.equal(out.isfinite() | (exact.abs() > 0.99 * torch.finfo(dtype).max), torch.ones_like(out).bool())
    out.zero_()
    assert torch.equal(memory, before), "it wrote beside its result"


def test_a_matrix_of_groups_with_gaps_is_as_good() -> None:
    left, right, scale, zero = grouped(2, 40, 64, 4, torch.float32, with_zeros=True)
    assert right is not None and scale is not None and zero is not None
    expected = GROUPED_MM(left, right, scale, zero)
    for spread in range(3):
        apart = [lying(each, "gaps" if spread == i else "dense") for i, each in enumerate((right, scale, zero))]
        out = torch.empty(2, 40)
        by_engine("airgraph::grouped_mm", left, *apart, out=out)
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)


def test_scales_of_another_type() -> None:
    left, right, scale, zero = grouped(2, 70, 64, 4, torch.float32, with_zeros=True)
    assert left is not None and scale is not None
    out = torch.empty(2, 70, dtype=torch.bfloat16)
    assert by_engine("airgraph::grouped_mm", left.bfloat16(), right, scale, zero, out=out) == "own"
    torch.testing.assert_close(out, GROUPED_MM(left.bfloat16(), right, scale, zero), rtol=2e-2, atol=0.1)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_comes_through(bad: float) -> None:
    left, right, scale, zero = grouped(2, 20, 64, 4, torch.float32, with_zeros=True)
    assert left is not None and scale is not None and right is not None
    left[1, 3] = bad
    right[:, 3] = 1
    assert zero is not None
    zero[:] = 0
    out = torch.empty(2, 20)
    assert by_engine("airgraph::grouped_mm", left, right, scale, zero, out=out) == "own"
    expected = GROUPED_MM(left, right, scale, zero)
    assert torch.equal(out.isnan(), expected.isnan()) and torch.equal(out.isinf(), expected.isinf())
    assert out[0].isfinite().all()


@pytest.mark.parametrize("rows", [1, 3, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_sum_that_float32_holds_only_when_it_is_scaled(dtype: torch.dtype, rows: int) -> None:
    left = torch.full((rows, 64), 1e36, dtype=dtype)
    left[rows - 1, ::2] = -1e36
    right, zero = whole(20, 64, low=1, high=8), torch.full((20, 2), -100, dtype=torch.int8)
    scale = torch.full((20, 2), 0.01, dtype=dtype)
    out = torch.empty(rows, 20, dtype=dtype)
    assert by_engine("airgraph::grouped_mm", left, right, scale, zero, out=out) == "own"
    exact = GROUPED_MM(left.double(), right, scale.double(), zero)
    assert further_off([out], [GROUPED_MM(left, right, scale, zero)], [exact]) <= 1.02


@pytest.mark.parametrize("of_group", [1, 3, 8, 11])
def test_a_scale_that_is_infinite(of_group: int) -> None:
    """A vector's lanes past the end of a group hold zeros, and an infinite scale makes no number of them."""
    left, right = torch.ones(2, 2 * of_group), torch.full((5, 2 * of_group), 3, dtype=torch.int8)
    right[1] = 0
    scale = torch.full((5, 2), math.inf)
    scale[2] = torch.tensor([1.0, -math.inf])
    out = torch.empty(2, 5)
    assert by_engine("airgraph::grouped_mm", left, right, scale, None, out=out) == "own"
    torch.testing.assert_close(out, GROUPED_MM(left, right, scale, None), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["aten::_int_mm", "airgraph::grouped_mm"])
def test_the_number_of_threads_does_not_change_a_bit(name: str) -> None:
    left, right, scale, zero = grouped(3, 900, 704, 22, torch.float32, with_zeros=True)
    assert right is not None
    found = []
    before = torch.get_num_threads()
    for count in (1, 3):
        torch.set_num_threads(count)
        try:
            if name == "aten::_int_mm":
                out = torch.empty(3, 900, dtype=torch.int32)
                by_engine(name, whole(3, 704), right.t(), out=out)
            else:
                out = torch.empty(3, 900)
                by_engine(name, left, right, scale, zero, out=out)
        finally:
            torch.set_num_threads(before)
        found.append(out)
    assert torch.equal(*found)
