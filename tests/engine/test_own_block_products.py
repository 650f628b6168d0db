"""Products of many rows by kernels of our own, on weights as they lie and in panels, against float64 and eager."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from own_calls import by_engine, further_off, lying, values
from torch import Tensor

from airgraph.runtime.engine.loading import engine, engine_status

pytestmark = pytest.mark.skipif(not engine_status().loaded, reason="the native engine is not here")

# Rows that are no multiple of those that registers hold, columns that are none of a panel, sums longer than a chain,
# several blocks of rows.
SHAPES = [(9, 1, 1), (12, 33, 100), (13, 16, 129), (31, 200, 64), (64, 70, 300), (200, 48, 700), (450, 17, 40)]


def operands(kind: str, rows: int, n: int, k: int, seed: int = 0) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(seed)
    batch = (3,) if kind in ("bmm", "baddbmm") else ()
    left = values(*batch, rows, k, dtype=torch.float32, generator=generator)
    right = values(*batch, n, k, dtype=torch.float32, generator=generator).transpose(-1, -2)
    bias = values(n, dtype=torch.float32, generator=generator)
    return (bias, left, right) if kind in ("addmm", "baddbmm") else (left, right)


@pytest.mark.parametrize("lies", ["by columns", "by rows"])
@pytest.mark.parametrize("kind", ["mm", "addmm", "bmm", "baddbmm"])
def test_they_are_not_further_from_float64_than_eager(kind: str, lies: str) -> None:
    ours, theirs, exact = [], [], []
    for rows, n, k in SHAPES:
        args = operands(kind, rows, n, k)
        if lies == "by rows":
            args = (*args[:-1], args[-1].contiguous())
        eager = getattr(torch, kind)
        theirs.append(eager(*args))
        exact.append(eager(*(each.double() for each in args)))
        out = torch.empty_like(theirs[-1])
        assert by_engine(f"aten::{kind}", *args, out=out) == "own"
        ours.append(out)
    assert further_off(ours, theirs, exact) <= 1.02


@pytest.mark.parametrize("k", [4096, 14336])
@pytest.mark.parametrize("sign", ["both", "positive"])
def test_long_sums_are_not_further_off(sign: str, k: int) -> None:
    ours, theirs, exact = [], [], []
    for seed in range(3):
        left, right = operands("mm", 16, 32, k, seed)
        if sign == "positive":
            left, right = left.abs(), right.abs()
        out = torch.empty(16, 32)
        assert by_engine("aten::mm", left, right, out=out) == "own"
        ours.append(out)
        theirs.append(left @ right)
        exact.append(left.double() @ right.double())
    assert further_off(ours, theirs, exact) <= 1.02


@given(
    rows=st.integers(9, 60),
    n=st.integers(1, 90),
    k=st.integers(1, 300),
    how=st.tuples(*[st.sampled_from(["dense", "offset", "gaps"])] * 3),
    right_lies=st.sampled_from(["by columns", "by rows", "apart"]),
    with_bias=st.booleans(),
    seed=st.integers(0, 2**20),
)
def test_wherever_their_tensors_lie(
    rows: int, n: int, k: int, how: tuple[str, str, str], right_lies: str, with_bias: bool, seed: int
) -> None:
    bias, left, right = operands("addmm", rows, n, k, seed)
    left = lying(left, how[0])
    if right_lies == "apart":
        right = torch.empty(k, n, 2)[..., 0].copy_(right)
    else:
        right = lying(right, how[1]) if right_lies == "by rows" else lying(right.t(), how[1]).t()
    out = lying(torch.zeros(rows, n), how[2])
    memory = torch.empty(0).set_(out.untyped_storage())
    before = memory.clone()
    args = (bias, left, right) if with_bias else (left, right)
    assert by_engine("aten::addmm" if with_bias else "aten::mm", *args, out=out) == "own"
    exact = left.double() @ right.double() + (bias.double() if with_bias else 0)
    scale = left.double().abs() @ right.double().abs() + bias.double().abs()
    assert bool(((out.double() - exact).abs() <= scale * (k + 2) * 6e-8).all())
    out.copy_(torch.zeros_like(out))
    assert torch.equal(memory, before), "it wrote beside its result"


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("k", [1, 37, 300])
def test_what_is_no_number_comes_through_as_in_eager(bad: float, k: int) -> None:
    left, right = torch.ones(11, k), torch.ones(19, k).t()
    for spoiled, place in itertools.product((left, right), ((0, 0), (-1, -1))):
        before = spoiled[place].item()
        spoiled[place] = bad
        out = torch.empty(11, 19)
        assert by_engine("aten::mm", left, right, out=out) == "own"
        assert torch.equal(out.isnan(), (left @ right).isnan()) and torch.equal(out.isinf(), (left @ right).isinf())
        spoiled[place] = before


@pytest.mark.parametrize("threads", [2, 3])
def test_the_number_of_threads_does_not_change_a_bit(threads: int) -> None:
    left, right = operands("mm", 300, 500, 400)
    found = []
    before = torch.get_num_threads()
    for count in (1, threads):
        torch.set_num_threads(count)
        try:
            out = torch.empty(300, 500)
            assert by_engine("aten::mm", left, right, out=out) == "own"
        finally:
            torch.set_num_threads(before)
        found.append(out)
    assert torch.equal(*found)


@pytest.mark.parametrize("what", ["columns of left", "scaled", "rows of bias", "float64", "spread result"])
def test_what_they_do_not_serve_is_eagers(what: str) -> None:
    bias, left, right = operands("addmm", 12, 20, 30)
    out, numbers = torch.empty(12, 20), {}
    match what:
        case "columns of left":
            left = left.t().contiguous().t()
        case "scaled":
            numbers = {"alpha": 2}
        case "rows of bias":
            bias = bias.expand(12, 20).contiguous()
        case "float64":
            bias, left, right, out = bias.double(), left.double(), right.double(), out.double()
        case "spread result":
            out = torch.empty(12, 20, 2)[..., 0]
    assert by_engine("aten::addmm", bias, left, right, out=out, **numbers) != "own"
    torch.testing.assert_close(out, torch.addmm(bias, left, right, **numbers))


def packed_product(left: Tensor, right: Tensor, packed: Any) -> Tensor:
    native = engine()
    out = torch.empty(left.shape[0], right.shape[1])
    tape = native.Tape()
    given = {"args": (left, right), "kwargs": {}, "outs": [out], "fresh": [True], "needed": [True]}
    call = native.RecordedCall(
        name="aten::mm", overload="", **given, out_overload=None, redispatch=False, exact=False, packed=packed
    )
    assert tape.append(call) == "own"
    tape.replay()
    return out


@pytest.mark.parametrize("lies", ["by columns", "by rows"])
@pytest.mark.parametrize(("rows", "n", "k"), SHAPES)
def test_panels_change_no_bit(rows: int, n: int, k: int, lies: str) -> None:
    left, right = operands("mm", rows, n, k)
    right = right.contiguous() if lies == "by rows" else right
    out = torch.empty(rows, n)
    by_engine("aten::mm", left, right, out=out)
    packed = engine().PackedWeight(right, right)
    assert packed.nbytes >= right.nbytes
    assert torch.equal(packed_product(left, right, packed), out)


def test_a_part_of_a_weight_is_packed() -> None:
    weight = torch.randn(40, 30)
    matrix = weight[8:24].t()
    left = torch.randn(10, 30)
    packed = engine().PackedWeight(weight, matrix)
    torch.testing.assert_close(packed_product(left, matrix, packed), left @ matrix)


def change(how: str, weight: torch.nn.Parameter) -> Tensor:
    with torch.no_grad():
        match how:
            case "in place":
                weight[3, 3] = 7
            case "through a view":
                weight.view(-1)[5:7].zero_()
            case "all of .data":
                weight.data.mul_(2)
            case "another .data":
                weight.data = torch.randn_like(weight)
            case "back at the old address":
                old = weight.data
                weight.data = torch.randn_like(weight)
                old.add_(1)  # which counts in the old tensor
                weight.data = old
            case "all of NumPy":
                weight.detach().numpy()[:] = 3
            case "another parameter":
                return torch.nn.Parameter(weight.detach().clone())
    return weight


@pytest.mark.parametrize(
    "how",
    [
        "in place",
        "through a view",
        "all of .data",
        "another .data",
        "back at the old address",
        "all of NumPy",
        "another parameter",
    ],
)
def test_a_weight_that_has_changed_is_packed_anew(how: str) -> None:
    weight = torch.nn.Parameter(torch.randn(32, 48))
    packed = engine().PackedWeight(weight, weight.detach().t())
    before = packed.address
    packed.refresh(weight)
    assert packed.address == before
    weight = change(how, weight)
    packed.refresh(weight)
    left, right = torch.randn(9, 48), weight.detach().t()
    torch.testing.assert_close(packed_product(left, right, packed), left @ right)


def test_what_lies_where_another_weight_was_is_not_taken_for_it() -> None:
    native = engine()
    memory = torch.randn(32, 48)
    packed = native.PackedWeight(memory[:], memory.t())  # whose object is gone at once
    memory.numpy()[1, 2] = 100  # which nothing counts
    packed.refresh(memory[:])
    left = torch.randn(9, 48)
    torch.testing.assert_close(packed_product(left, memory.t(), packed), left @ memory.t())


def test_launches_share_what_is_packed_of_one_weight() -> None:
    native = engine()
    weight = torch.randn(32, 48)
    first, second, other = (native.PackedWeight(weight, matrix) for matrix in (weight.t(), weight.t(), weight))
    assert first.address == second.address != other.address
    with torch.no_grad():
        weight.add_(1)
    first.refresh(weight)
    assert first.address != second.address  # which is not changed under a replay that may be reading it
    second.refresh(weight)
    assert first.address == second.address


def test_a_weight_that_changes_at_every_call_is_packed_no_longer() -> None:
    weight = torch.randn(32, 48)
    packed = engine().PackedWeight(weight, weight.t())
    for _ in range(5):
        assert packed.nbytes
        weight.neg_()
        packed.refresh(weight)
    assert packed.nbytes == 0
    left = torch.randn(9, 48)
    torch.testing.assert_close(packed_product(left, weight.t(), packed), left @ weight.t())


def test_a_weight_of_inference_mode_is_not_packed() -> None:
    with torch.inference_mode():
        weight = torch.randn(32, 48)
    assert engine().PackedWeight(weight, weight.t()).nbytes == 0
