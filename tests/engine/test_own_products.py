"""Products of few rows by kernels of our own, against float64 and eager, in each instruction set that is here."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from own_calls import by_engine, further_off, lying, values
from torch import Tensor

from airgraph.runtime.engine.loading import engine, engine_status

pytestmark = pytest.mark.skipif(not engine_status().loaded, reason="the native engine is not here")

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
# Short and long rows, multiples of no vector, one element, more than a part of a loop.
SIZES = [(1, 1), (3, 5), (16, 64), (64, 64), (33, 100), (7, 129), (192, 576), (70, 1000), (600, 300)]


def product(name: str, left: Tensor, right: Tensor, *extra: Tensor, dtype: torch.dtype) -> Tensor:
    """The operator in a type, as eager computes it."""
    left, right = left.to(dtype), right.to(dtype)
    found = torch.bmm(left, right) if left.dim() == 3 else left @ right
    for each in extra:
        found = found * each.to(dtype) if name == "airgraph::mixed_mm" else found + each.to(dtype)
    return found


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("kind", ["mm", "addmm", "bmm", "baddbmm", "int8", "int8 scaled"])
def test_they_are_not_further_from_float64_than_eager(kind: str, rows: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(rows)
    ours, theirs, exact = [], [], []
    for n, k in SIZES:
        batch = (2,) if "bmm" in kind else ()
        left = values(*batch, rows, k, dtype=dtype, generator=generator)
        stored = torch.int8 if kind.startswith("int8") else dtype
        right = values(*batch, n, k, dtype=stored, generator=generator).transpose(-1, -2)
        extra = [values(n, dtype=dtype, generator=generator)] if "add" in kind or "scaled" in kind else []
        name = "airgraph::mixed_mm" if kind.startswith("int8") else f"aten::{kind}"
        args: tuple[Any, ...] = (left, right, *extra)
        if "add" in kind:
            args = (*extra, left, right)
        elif kind == "int8":
            args = (left, right, None)
        out = torch.empty(*batch, rows, n, dtype=dtype)
        assert by_engine(name, *args, out=out) == "own"
        ours.append(out)
        theirs.append(getattr(torch, kind)(*args) if "add" in kind else product(name, left, right, *extra, dtype=dtype))
        exact.append(product(name, left, right, *extra, dtype=torch.float64))
    assert further_off(ours, theirs, exact) <= 1.02


@pytest.mark.parametrize("k", [4096, 14336, 65536])
@pytest.mark.parametrize("rows", [1, 2, 4, 8])
@pytest.mark.parametrize("sign", ["both", "positive", "cancelling"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_long_rows_are_not_further_off(dtype: torch.dtype, sign: str, rows: int, k: int) -> None:
    """One chain of additions as long as a row would be."""
    ours, theirs, exact = [], [], []
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        left, right = (values(count, k, dtype=torch.float32, generator=generator) for count in (rows, 32))
        if sign != "both":
            left, right = left.abs(), right.abs()
        if sign == "cancelling":
            left[:, k // 2 :], right[:, k // 2 :] = -left[:, : k // 2], right[:, : k // 2]
            left[:, 0] += 1e-3
        left, right = left.to(dtype), right.to(dtype)
        out = torch.empty(rows, 32, dtype=dtype)
        assert by_engine("aten::mm", left, right.t(), out=out) == "own"
        ours.append(out)
        theirs.append(left @ right.t())
        exact.append(left.double() @ right.double().t())
    assert further_off(ours, theirs, exact) <= 1.02


@pytest.mark.parametrize("k", [1, 31, 32, 33, 65, 576, 1536, 4097, 9000])
@pytest.mark.parametrize("row", ["even", "one outlier", "some outliers", "tiny", "zeros", "sparse"])
@pytest.mark.parametrize("weight", ["uniform", "normal", "signs", "blind to outliers"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_row_with_int8(dtype: torch.dtype, weight: str, row: str, k: int) -> None:
    """It is read as whole numbers of 16 bits, and of 8 or 16 more where these are not as good."""
    ours: dict[bool, list[Tensor]] = {False: [], True: []}
    theirs: dict[bool, list[Tensor]] = {False: [], True: []}
    exact: dict[bool, list[Tensor]] = {False: [], True: []}
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        left = torch.randn(1, k, generator=generator)
        match row:
            case "one outlier":
                left[0, k // 2] = 1e4
            case "some outliers":
                left[0, ::50] *= 20
            case "tiny":
                left *= 1e-30
            case "zeros":
                left.zero_()
            case "sparse":
                left[0, 1:] *= 1e-3
        if dtype is torch.float16:
            left /= 512  # whose results are numbers too
        left = left.to(dtype)
        right = values(200, k, dtype=torch.int8, generator=generator)
        if weight == "normal":
            right = (torch.randn(200, k, generator=generator) * 35).clamp(-127, 127).to(torch.int8)
        elif weight == "signs":
            right = (right.sign() * 127).to(torch.int8)
        elif weight == "blind to outliers":
            right[:, [0, k // 2]] = 0
            right[:, ::50] = 0
        scale = (torch.rand(200, generator=generator) * 1e-3 + 1e-4).to(dtype)
        for is_scaled in (False, True):
            out = torch.empty(1, 200, dtype=dtype)
            assert by_engine("airgraph::mixed_mm", left, right.t(), scale if is_scaled else None, out=out) == "own"
            ours[is_scaled].append(out)
            their, true = left @ right.t().to(dtype), left.double() @ right.t().double()
            theirs[is_scaled].append(their * scale if is_scaled else their)
            exact[is_scaled].append(true * scale.double() if is_scaled else true)
    for is_scaled in (False, True):
        if not torch.cat(exact[is_scaled]).any():
            assert not torch.cat(ours[is_scaled]).any()
        else:
            assert further_off(ours[is_scaled], theirs[is_scaled], exact[is_scaled]) <= 1.02, (
                is_scaled,
                further_off(ours[is_scaled], theirs[is_scaled], exact[is_scaled]),
            )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 3e38])
def test_a_row_of_bfloat16_with_what_is_no_number(value: float) -> None:
    left = torch.randn(1, 70).bfloat16()
    left[0, 33] = value
    right = torch.randint(-100, 100, (40, 70), dtype=torch.int8)
    right[:5, 33] = 0
    out = torch.empty(1, 40, dtype=torch.bfloat16)
    assert by_engine("airgraph::mixed_mm", left, right.t(), None, out=out) == "own"
    torch.testing.assert_close(out, (left.float() @ right.float().t()).bfloat16(), equal_nan=True, rtol=1e-2, atol=0)


@pytest.mark.parametrize(("batch", "n", "k"), [(4096, 4, 16), (300, 16, 64), (70, 1, 1), (5, 300, 500)])
def test_many_matrices_share_the_parts_of_a_loop(batch: int, n: int, k: int) -> None:
    generator = torch.Generator().manual_seed(0)
    left, right = (values(batch, count, k, dtype=torch.float32, generator=generator) for count in (2, n))
    out = torch.empty(batch, 2, n)
    assert by_engine("aten::bmm", left, right.transpose(1, 2), out=out) == "own"
    torch.testing.assert_close(out, left @ right.transpose(1, 2), rtol=1e-4, atol=1e-4)


@given(
    rows=st.integers(1, 8),
    n=st.integers(1, 90),
    k=st.integers(1, 400),
    dtype=st.sampled_from(FLOATS),
    name=st.sampled_from(["aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "airgraph::mixed_mm"]),
    batch=st.integers(1, 4),
    bias_of=st.sampled_from(["columns", "rows", "all"]),
    how=st.tuples(*[st.sampled_from(["dense", "offset", "gaps"])] * 4),
    transposed=st.booleans(),
    threads=st.sampled_from([1, 2]),
    seed=st.integers(0, 2**20),
)
def test_wherever_their_tensors_lie(
    rows: int,
    n: int,
    k: int,
    dtype: torch.dtype,
    name: str,
    batch: int,
    bias_of: str,
    how: tuple[str, ...],
    transposed: bool,
    threads: int,
    seed: int,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    batches = (batch,) if "bmm" in name else ()
    stored = torch.int8 if "mixed" in name else dtype
    left = lying(values(*batches, rows, k, dtype=dtype, generator=generator), how[0])
    if transposed:
        left = left.mT.contiguous().mT
    right = lying(values(*batches, n, k, dtype=stored, generator=generator), how[1]).mT
    out = lying(torch.zeros(*batches, rows, n, dtype=dtype), how[2])
    memory = torch.empty(0, dtype=dtype).set_(out.untyped_storage())
    before = memory.clone()
    args: tuple[Any, ...] = (left, right)
    exact, scale = left.double() @ right.double(), (left.double().abs() @ right.double().abs()).clamp_min(1e-30)
    if "mixed" in name:
        args = (left, right, None)
    elif "add" in name:
        shape = {"columns": (n,), "rows": (rows, 1), "all": (*batches, rows, n)}[bias_of]
        bias = lying(values(*shape, dtype=dtype, generator=generator), how[3])
        args, exact, scale = (bias, left, right), exact + bias.double(), scale + bias.double().abs()
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert by_engine(name, *args, out=out) == "own"
    finally:
        torch.set_num_threads(threads_before)
    # One rounding of the result, and those of the sums, of which no chain is longer than k.
    allowed = torch.finfo(dtype).eps * exact.abs() + scale * ((k + 1) * 6e-8)
    if dtype is torch.float16:
        allowed = allowed + 6e-8
        exact = torch.where(exact.abs() > 65504, exact.half().double(), exact)
    assert bool(((out.double() - exact).abs() <= allowed).logical_or(out.isinf()).all())
    out.copy_(torch.zeros_like(out))
    assert torch.equal(memory, before), "it wrote beside its result"


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("k", [1, 37, 600])
def test_what_is_no_number_comes_through_as_in_eager(bad: float, dtype: torch.dtype, k: int) -> None:
    left, right = torch.ones(2, k, dtype=dtype), torch.ones(9, k, dtype=dtype).t()
    for spoiled in (left, right):
        for place in itertools.product((0, 1), (0,)) if spoiled is left else [(0, 0), (k - 1, 8)]:
            before = spoiled[place].item()
            spoiled[place] = bad
            out = torch.empty(2, 9, dtype=dtype)
            assert by_engine("aten::mm", left, right, out=out) == "own"
            assert torch.equal(out.isnan(), (left @ right).isnan()) and torch.equal(out.isinf(), (left @ right).isinf())
            spoiled[place] = before


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ["aten::mm", "aten::baddbmm", "airgraph::mixed_mm"])
@pytest.mark.parametrize("threads", [2, 3])
def test_the_number_of_threads_does_not_change_a_bit(threads: int, name: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    batches = (3,) if "bmm" in name else ()
    left = values(*batches, 3, 700, dtype=dtype, generator=generator)
    stored = torch.int8 if "mixed" in name else dtype
    right = values(*batches, 900, 700, dtype=stored, generator=generator).mT
    args: tuple[Any, ...] = (left, right, None) if "mixed" in name else (left, right)
    if "add" in name:
        args = (values(900, dtype=dtype, generator=generator), *args)
    found = []
    before = torch.get_num_threads()
    for count in (1, threads):
        torch.set_num_threads(count)
        try:
            out = torch.empty(*batches, 3, 900, dtype=dtype)
            assert by_engine(name, *args, out=out) == "own"
        finally:
            torch.set_num_threads(before)
        found.append(out)
    assert torch.equal(*found)


@pytest.mark.parametrize(
    ("rows", "transposed", "dtype"),
    [(9, True, torch.bfloat16), (2, False, torch.float32), (2, True, torch.float64), (2, True, torch.complex64)],
)
def test_what_they_do_not_serve_is_eagers(rows: int, transposed: bool, dtype: torch.dtype) -> None:
    left, right = torch.randn(rows, 12).to(dtype), torch.randn(12, 20).to(dtype)
    right = right.t().contiguous().t() if transposed else right
    out = torch.empty(rows, 20, dtype=dtype)
    assert by_engine("aten::mm", left, right, out=out) != "own"
    assert torch.equal(out, left @ right)


@pytest.fixture
def places() -> Iterator[Callable[[bool], None]]:
    """Whether matrices are read at several places from now on."""
    yield engine().read_several_places
    engine().read_several_places(None)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("stored", ["as it is", "int8", "int8 scaled"])
@pytest.mark.parametrize("rows", [1, 3, 6, 7, 8])
@pytest.mark.parametrize(("n", "k"), [(3, 8200), (5, 16500), (643, 128), (150, 1100), (193, 4096), (1027, 576)])
def test_a_matrix_that_is_read_at_several_places_gives_the_same_bits(
    n: int, k: int, rows: int, stored: str, dtype: torch.dtype, places: Callable[[bool], None]
) -> None:
    generator = torch.Generator().manual_seed(n)
    left = values(rows, k, dtype=dtype, generator=generator)
    # Rows lie apart, the first one behind the begin.
    whole = values(n + 1, k + 24, dtype=dtype if stored == "as it is" else torch.int8, generator=generator)
    right = whole[1:, 8 : k + 8].t()
    scale = values(n, dtype=dtype, generator=generator) if stored == "int8 scaled" else None
    name, args = ("aten::mm", (left, right)) if stored == "as it is" else ("airgraph::mixed_mm", (left, right, scale))
    found = []
    for several in (False, True):
        places(several)
        out = torch.full((rows, n), math.nan, dtype=dtype)
        assert by_engine(name, *args, out=out) == "own"
        found.append(out)
    assert torch.equal(*found)
    assert found[0].isfinite().all()


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("batch", "rows", "n", "k"), [(1, 1, 643, 600), (3, 1, 67, 1600), (3, 5, 131, 2000)])
def test_each_matrix_of_a_batch_has_places_of_its_own(
    batch: int, rows: int, n: int, k: int, dtype: torch.dtype, threads: int, places: Callable[[bool], None]
) -> None:
    left, right = torch.randn(batch, rows, k).to(dtype), torch.randn(batch, n, k).to(dtype).transpose(1, 2)
    bias = torch.randn(batch, rows, n).to(dtype)
    before = torch.get_num_threads()
    found = []
    for several in (False, True):
        places(several)
        out = torch.full((batch, rows, n), math.nan, dtype=dtype)
        torch.set_num_threads(threads)
        try:
            assert by_engine("aten::baddbmm", bias, left, right, out=out) == "own"
        finally:
            torch.set_num_threads(before)
        found.append(out)
    assert torch.equal(*found)
    torch.testing.assert_close(found[0].double(), bias.double() + left.double() @ right.double(), rtol=2e-2, atol=2e-1)


def test_where_it_is_read_is_known_for_this_processor(places: Callable[[bool | None], None]) -> None:
    vendor = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "vendor_id" in line), "")
    is_avx2_of_amd = "AuthenticAMD" in vendor and torch.backends.cpu.get_cpu_capability() == "AVX2"
    known = "GenuineIntel" in vendor or is_avx2_of_amd
    assert engine().reads_several_places() == known
    places(True)
    assert engine().reads_several_places()
    places(None)
    assert engine().reads_several_places() == known


def test_the_instruction_set_is_what_the_environment_allows() -> None:
    """Else `test_every_instruction_set` below would run one of them three times."""
    allowed = os.environ.get("ATEN_CPU_CAPABILITY") or torch.backends.cpu.get_cpu_capability()
    level = {"default": "scalar", "avx2": "AVX2", "avx512": "AVX512"}.get(allowed.lower(), "scalar")
    assert engine().own_level() == level
    assert engine().may_use_dots() == (level == "AVX512" and os.environ.get("AIRGRAPH_CPU_DOTS") != "0")


def test_exact_kernels_are_eagers() -> None:
    left, right = torch.randn(1, 64), torch.randn(64, 64).t()
    out = torch.empty(1, 64)
    assert by_engine("aten::mm", left, right, out=out, exact=True) != "own"
    assert torch.equal(out, left @ right)


# What ATen and our kernels use is limited by a variable of ATen's, MKL, whose sums eager gives, by its own. Not oneDNN:
# without AVX-512 its sums of int8 saturate.
_OF_MKL = {"default": "SSE4_2", "avx2": "AVX2"}


# Kernels that use AVX-512's dot products, and all that are there for several instruction sets.
_BY_DOTS = ("products", "products_together", "int_products")
_BY_LEVEL = (*_BY_DOTS, "block_products", "attention", "rows", "row_programs", "norms", "activations", "gathers")

# Of the products of a row with int8, three quarters of all cases, a size that is no vector's multiple with all rows and
# weights, one of many vectors with all rows, and all sizes; the longest rows have run, and take one operation at a time
# a while.
_ALL = "not 9000 and not 65536"
_SOME = f"{_ALL} and not 14336 and (not test_a_row_with_int8 or -33] or normal-even or (blind and -576]))"


@pytest.mark.parametrize("limit", ["ATEN_CPU_CAPABILITY=default", "ATEN_CPU_CAPABILITY=avx2", "AIRGRAPH_CPU_DOTS=0"])
def test_every_instruction_set(limit: str, request: pytest.FixtureRequest) -> None:
    """As on a machine that has no more."""
    name, value = limit.split("=")
    if "ATEN_CPU_CAPABILITY" in os.environ or "AIRGRAPH_CPU_DOTS" in os.environ:
        pytest.skip("this is such a process")
    if value != "default" and torch.backends.cpu.get_cpu_capability() != "AVX512":
        pytest.skip("every process here is such a one")
    here = Path(__file__).parent
    files = [str(here / f"test_own_{kind}.py") for kind in (_BY_DOTS if name == "AIRGRAPH_CPU_DOTS" else _BY_LEVEL)]
    cases = _ALL if request.config.getoption("--full-sweep") else _SOME
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", "-k", cases, *files],
        env={**os.environ, name: value, **({"MKL_ENABLE_INSTRUCTIONS": _OF_MKL[value]} if value in _OF_MKL else {})},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
