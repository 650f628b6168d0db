"""gelu of few numbers: never further from float64 than eager's, and the same of what is no number."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from own_calls import by_engine, further_off, lying
from torch.nn.functional import gelu

from airgraph.runtime.engine.loading import engine_status

pytestmark = pytest.mark.skipif(not engine_status().loaded, reason="the native engine is not here")


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("spread", [0.1, 1.0, 5.0])
def test_it_is_as_near_as_eagers(spread: float, approximate: str) -> None:
    generator = torch.Generator().manual_seed(0)
    ours, theirs, exact = [], [], []
    for count in (1, 7, 16, 255, 3072, 4096):
        x = torch.randn(count, generator=generator) * spread
        out = torch.empty_like(x)
        assert by_engine("aten::gelu", x, out=out, approximate=approximate) == "own"
        ours.append(out)
        theirs.append(gelu(x, approximate=approximate))
        exact.append(gelu(x.double(), approximate=approximate))
    assert further_off(ours, theirs, exact) <= 1.02


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("how", ["offset", "gaps", "columns"])
def test_rows_may_lie_apart(how: str, approximate: str) -> None:
    x = torch.randn(5, 33, generator=torch.Generator().manual_seed(0))
    x = x.t().contiguous().t() if how == "columns" else lying(x, how)
    out = torch.empty_like(x)
    by_engine("aten::gelu", x, out=out, approximate=approximate)
    torch.testing.assert_close(out, gelu(x, approximate=approximate))


@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    order=st.permutations(range(4)),
    how=st.tuples(*[st.sampled_from(["dense", "offset", "gaps"])] * 2),
    spread=st.sampled_from([1e-3, 1.0, 30.0]),
    approximate=st.sampled_from(["none", "tanh"]),
    seed=st.integers(0, 2**20),
)
def test_wherever_its_tensors_lie(
    shape: list[int], order: list[int], how: tuple[str, str], spread: float, approximate: str, seed: int
) -> None:
    dims = [dim for dim in order if dim < len(shape)]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * spread
    x, out = lying(x, how[0]).permute(dims), lying(torch.zeros(shape), how[1]).permute(dims)
    memory = torch.empty(0).set_(out.untyped_storage())
    before = memory.clone()
    if by_engine("aten::gelu", x, out=out, approximate=approximate) != "own":
        # ATen's fills no result with gaps, and no graph has one (`_DENSE_ONLY` in passes/remove_cat.py).
        return
    # What 1 + erf or 1 + tanh loses near -1, which eager's loses too.
    torch.testing.assert_close(out.double(), gelu(x.double(), approximate=approximate), rtol=1e-6, atol=2e-7 * spread)
    out.zero_()
    assert torch.equal(memory, before), "it wrote beside its result"


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_what_is_no_number_stays_so(approximate: str) -> None:
    x = torch.tensor([math.nan, math.inf, 0.0, -0.0, 3e38, 1e-40] * 4)
    out = torch.empty_like(x)
    assert by_engine("aten::gelu", x, out=out, approximate=approximate) == "own"
    torch.testing.assert_close(out, gelu(x.double(), approximate=approximate).float(), equal_nan=True)


def test_many_numbers_and_other_types_are_atens() -> None:
    for x in (torch.randn(200, 200), torch.randn(8).bfloat16(), torch.randn(8).double()):
        out = torch.empty_like(x)
        assert by_engine("aten::gelu", x, out=out, approximate="none") != "own"
        assert torch.equal(out, gelu(x))
