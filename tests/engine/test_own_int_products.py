"""Products with integers by kernels of our own: of int8 with int8, and with int8 that has scales for groups."""

from __future__ import annotations

import pytest
import torch
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
