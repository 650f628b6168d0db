"""Pointwise operators, casts and means of few numbers by kernels of our own, against eager and float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from own_calls import by_engine, further_off, lying, values
from torch import Tensor

from airgraph.runtime.engine.loading import engine_status

pytestmark = pytest.mark.skipif(not engine_status().loaded, reason="the native engine is not here")

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
BINARY: dict[str, Callable[..., Tensor]] = {
    "aten::add": torch.add,
    "aten::sub": torch.sub,
    "aten::mul": torch.mul,
    "aten::div": torch.div,
}
UNARY: dict[str, Callable[..., Tensor]] = {
    "aten::neg": torch.neg,
    "aten::rsqrt": torch.rsqrt,
    "aten::relu": torch.relu,
    "aten::pow.Tensor_Scalar": lambda x: torch.pow(x, 2),
}
SPECIAL = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-40, -1e-40, 3e38, -65504.0, 1.0])


def served(name: str, *args: Any, out: Tensor, **kwargs: Any) -> str:
    operator, _, overload = name.partition(".")
    return by_engine(operator, *args, out=out, overload=overload or ("Tensor" if operator in BINARY else ""), **kwargs)


def same(found: Tensor, expected: Tensor) -> bool:
    signs = torch.equal(found.signbit() & ~found.isnan(), expected.signbit() & ~expected.isnan())
    return signs and torch.equal(found.nan_to_num(7.0, 8.0, 9.0), expected.nan_to_num(7.0, 8.0, 9.0))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((1, 1, 576), (1, 1, 576)),
        ((1, 9, 1, 64), (1, 1, 1, 64)),
        ((5, 33), (33,)),
        ((5, 33), (5, 1)),
        ((7,), (1,)),
        ((1, 1, 1), (1, 1, 1)),
        ((3, 17), ()),
    ],
)
def test_two_operands_are_bit_equal(
    name: str, left: tuple[int, ...], right: tuple[int, ...], dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (values(*shape, dtype=dtype, generator=generator) for shape in (left, right))
    out = torch.empty(left, dtype=dtype)
    assert served(name, a, b, out=out) == "own"
    assert torch.equal(out, BINARY[name](a, b))
    if name in ("aten::add", "aten::mul"):
        assert served(name, b, a, out=out) == "own"
        assert torch.equal(out, BINARY[name](b, a))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("number", [3, 2**60 + 2**36 + 1, 0.1, -1e-3, math.inf, math.nan])
def test_a_number_is_bit_equal(name: str, number: float, dtype: torch.dtype) -> None:
    a = values(3, 21, dtype=dtype, generator=torch.Generator().manual_seed(0))
    out = torch.empty(3, 21, dtype=dtype)
    assert served(name, a, number, out=out) == "own"
    assert same(out, BINARY[name](a, number))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", [*BINARY, *UNARY])
def test_what_is_no_common_number_is_eagers(name: str, dtype: torch.dtype) -> None:
    a = SPECIAL.to(dtype).repeat_interleave(10)
    b = SPECIAL.to(dtype).repeat(10)
    out = torch.empty(100, dtype=dtype)
    if name in BINARY:
        assert served(name, a, b, out=out) == "own"
        assert same(out, BINARY[name](a, b))
    else:
        assert served(name, *((a, 2) if "pow" in name else (a,)), out=out) == "own"
        assert same(out, UNARY[name](a))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("shape", [(1,), (3, 5), (1, 1, 576), (2, 9, 1, 32)])
def test_one_operand_is_bit_equal(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    a = values(*shape, dtype=dtype, generator=torch.Generator().manual_seed(1)).abs()
    out = torch.empty(shape, dtype=dtype)
    assert served(name, *((a, 2) if "pow" in name else (a,)), out=out) == "own"
    if name == "aten::rsqrt" and dtype is not torch.float32:
        # Eager rounds the root too.
        assert further_off([out], [a.rsqrt()], [a.double().rsqrt()]) <= 1
    else:
        assert torch.equal(out, UNARY[name](a))


@pytest.mark.parametrize("to", FLOATS, ids=str)
@pytest.mark.parametrize("of", FLOATS, ids=str)
def test_casts_are_bit_equal(of: torch.dtype, to: torch.dtype) -> None:
    if of is to:
        return
    a = torch.cat([SPECIAL, values(83, dtype=torch.float32, generator=torch.Generator().manual_seed(1)) * 1e3]).to(of)
    out = torch.empty(a.shape, dtype=to)
    assert served("aten::_to_copy", a, out=out, dtype=to) == "own"
    assert same(out, a.to(to))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_silu_and_mean_are_not_further_from_float64_than_eagers(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(2)
    ours, theirs, exact = [], [], []
    for size in (1, 5, 64, 1536, 9000):
        a = (torch.randn(2, size, generator=generator) * 6).to(dtype)
        out = torch.empty(2, size, dtype=dtype)
        assert served("aten::silu", a, out=out) == "own"
        ours.append(out)
        theirs.append(torch.nn.functional.silu(a))
        exact.append(torch.nn.functional.silu(a.double()))
    assert further_off(ours, theirs, exact) <= 1.02
    ours, theirs, exact = [], [], []
    for size in (2, 5, 64, 576, 9000):
        for _ in range(20):
            a = (torch.randn(2, size, generator=generator) ** 2).to(dtype)
            out = torch.empty(2, 1, dtype=dtype)
            assert served("aten::mean.dim", a, [-1], True, out=out) == "own"
            flat = torch.empty(2, dtype=dtype)
            assert served("aten::mean.dim", a, [1], False, out=flat) == "own"
            assert torch.equal(flat, out[:, 0])
            ours.append(out)
            theirs.append(a.mean(-1, keepdim=True))
            exact.append(a.double().mean(-1, keepdim=True))
    assert further_off(ours, theirs, exact) <= 1.02


@pytest.mark.parametrize("size", [100, 2048, 4096, 9000, 32768])
@pytest.mark.parametrize("row", ["constant", "both signs"])
def test_means_of_long_rows_are_not_further_off(row: str, size: int) -> None:
    generator = torch.Generator().manual_seed(3)
    ours, theirs, exact = [], [], []
    for _ in range(200):
        a = torch.rand(1, 1, generator=generator).repeat(1, size)
        if row == "both signs":
            a = torch.randn(1, size, generator=generator)
        out = torch.empty(1)
        assert served("aten::mean.dim", a, [-1], False, out=out) == "own"
        ours.append(out)
        theirs.append(a.mean(-1))
        exact.append(a.double().mean(-1))
    # Of random numbers the ratio itself is known to a tenth.
    assert further_off(ours, theirs, exact) <= (1.02 if row == "constant" else 1.15)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_silu_of_what_is_no_common_number_is_eagers(dtype: torch.dtype) -> None:
    a = torch.cat([SPECIAL, torch.tensor([-80.0, -89.0, -104.0, -200.0, 88.0, 100.0, 1e4, -1e4])]).to(dtype)
    out = torch.empty(a.shape, dtype=dtype)
    assert served("aten::silu", a, out=out) == "own"
    torch.testing.assert_close(out, torch.nn.functional.silu(a), equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("row", ["random", "equal", "rising", "falling", "infinite", "nan", "two nan", "all nan"])
@pytest.mark.parametrize("size", [1, 5, 16, 33, 1000, 49152])
def test_argmax_is_eagers(size: int, row: str, dtype: torch.dtype) -> None:
    a = torch.randn(2, size, generator=torch.Generator().manual_seed(size))
    match row:
        case "equal":
            a.fill_(-math.inf)
        case "rising" | "falling":
            a = a.sort(descending=row == "falling").values
        case "infinite":
            a[:, size // 2 :] = math.inf
        case "nan" | "two nan":
            a[0, size // 3] = math.nan
            a[0, -1] = math.nan if row == "two nan" else math.inf
        case "all nan":
            a.fill_(math.nan)
    a = a.to(dtype)
    for keepdim in (False, True):
        expected = a.argmax(-1, keepdim)
        out = torch.empty_like(expected)
        assert by_engine("aten::argmax", a, -1, keepdim, out=out) == ("own" if size > 1 else "typed")
        assert torch.equal(out, expected)


@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    broadcast=st.lists(st.booleans(), min_size=4, max_size=4),
    order=st.permutations(range(4)),
    how=st.tuples(*[st.sampled_from(["dense", "offset", "gaps"])] * 3),
    dtype=st.sampled_from(FLOATS),
    name=st.sampled_from([*BINARY, "aten::neg"]),
    seed=st.integers(0, 2**20),
)
def test_wherever_their_tensors_lie(
    shape: list[int],
    broadcast: list[bool],
    order: list[int],
    how: tuple[str, str, str],
    dtype: torch.dtype,
    name: str,
    seed: int,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    smaller = [1 if off else size for size, off in zip(shape, broadcast, strict=False)]
    dims = [dim for dim in order if dim < len(shape)]
    a, b = (
        lying(values(*of, dtype=dtype, generator=generator), way) for of, way in ((shape, how[0]), (smaller, how[1]))
    )
    a, b = a.permute(dims), b.permute(dims)
    out = lying(torch.zeros(shape, dtype=dtype), how[2]).permute(dims)
    memory = torch.empty(0, dtype=dtype).set_(out.untyped_storage())
    before = memory.clone()
    args = (a,) if name == "aten::neg" else (a, b)
    served(name, *args, out=out)
    assert torch.equal(out, torch.neg(a) if name == "aten::neg" else BINARY[name](a, b))
    out.zero_()
    assert torch.equal(memory, before), "it wrote beside its result"


def test_exact_kernels_are_eagers() -> None:
    a = torch.randn(37)
    out = torch.empty(37)
    assert served("aten::silu", a, out=out, exact=True) != "own"
    assert torch.equal(out, torch.nn.functional.silu(a))


def test_in_place() -> None:
    a, b = torch.randn(4, 37), torch.randn(37)
    expected = a * b
    assert served("aten::mul", a, b, out=a) == "own"
    assert torch.equal(a, expected)


def test_operands_that_overlap_the_result_otherwise_are_eagers() -> None:
    """What comes of these is not defined; nothing else may be written, and nobody is to notice which kernels run."""
    for operand in (slice(None, 1), slice(36)):
        found, expected = torch.full((2, 37), 2.0), torch.full((2, 37), 2.0)
        out, theirs = (found, expected) if operand.stop == 1 else (found[:, 1:], expected[:, 1:])
        assert served("aten::mul", out, found[:, operand], out=out) != "own"
        theirs.mul_(expected[:, operand])
        assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("add.Tensor", (torch.arange(5, dtype=torch.uint8), -1), {}),
        ("add.Tensor", (torch.arange(5, dtype=torch.int8), 300), {}),
        ("add.Tensor", (torch.ones(5, dtype=torch.complex64), 1.0), {}),
        ("add.Tensor", (torch.randn(40000), torch.randn(40000)), {}),  # which ATen shares among threads
        ("add.Tensor", (torch.randn(5), torch.randn(5)), {"alpha": 2}),
        ("add.Tensor", (torch.arange(5), torch.arange(5)), {}),
        ("mul.Tensor", (torch.randn(5), torch.randn(5, dtype=torch.float64)), {}),
        ("mul.Tensor", (torch.randn(5, dtype=torch.complex64), torch.randn(5, dtype=torch.complex64)), {}),
        ("mul.Tensor", (torch.randn(2, 3, 4).transpose(0, 2), torch.randn(2, 3, 1).transpose(0, 2)), {}),
        ("pow.Tensor_Scalar", (torch.randn(5), 3), {}),
        ("argmax", (torch.randn(3, 4), 0), {}),
        ("argmax", (torch.randn(2, 600_000), -1), {}),
        ("argmax", (torch.randn(3, 4),), {}),
        ("mean.dim", (torch.randn(3, 4), [0]), {}),
        ("mean.dim", (torch.randn(3, 4), [0, 1]), {}),
        ("mean.dim", (torch.randn(3, 4), [1]), {"dtype": torch.float64}),
    ],
)
def test_what_they_do_not_serve_is_eagers(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    operator, _, overload = name.partition(".")
    expected = getattr(getattr(torch.ops.aten, operator), overload or "default")(*args, **kwargs)
    out = torch.empty_like(expected)
    assert by_engine(f"aten::{operator}", *args, out=out, overload=overload, **kwargs) != "own"
    assert torch.equal(out, expected)
