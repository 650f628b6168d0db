"""Rows taken by their numbers are eager's, and so are the errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from own_calls import by_engine, lying, values
from torch import Tensor

import airgraph
from airgraph.errors import ReplayError
from airgraph.runtime.engine.loading import engine, engine_status

pytestmark = pytest.mark.skipif(not engine_status().loaded, reason="the native engine is not here")

DTYPES = (torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.complex64)
Take = Callable[[Tensor, Tensor], Tensor]


def embedding(table: Tensor, numbers: Tensor, out: Tensor) -> str:
    return by_engine("aten::embedding", table, numbers, -1, False, False, out=out)


def index_select(table: Tensor, numbers: Tensor, out: Tensor, dim: int = 0) -> str:
    return by_engine("aten::index_select", table, dim, numbers, out=out)


def index(table: Tensor, numbers: Tensor, out: Tensor) -> str:
    return by_engine("aten::index", table, [numbers], out=out, overload="Tensor")


def table_of(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    if dtype in (torch.int8, torch.bool):
        return torch.randint(0, 2 if dtype is torch.bool else 100, shape, generator=generator).to(dtype)
    return values(*shape, dtype=torch.float32, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count_type", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("take", [embedding, index_select, index])
def test_rows_are_eagers(take: Callable[..., str], count_type: torch.dtype, dtype: torch.dtype) -> None:
    table = table_of(11, 7, dtype=dtype)
    numbers = torch.tensor([3, 0, 10, 3], dtype=count_type)
    out = torch.empty(4, 7, dtype=dtype)
    assert take(table, numbers, out) == "own"
    assert torch.equal(out, table[numbers.long()])


@pytest.mark.parametrize("how", ["offset", "gaps"])
def test_a_table_may_lie_apart(how: str) -> None:
    table = lying(table_of(11, 7), how)
    out = torch.empty(2, 3, 7)
    numbers = torch.tensor([[1, 2, 3], [9, 0, 10]])
    assert embedding(table, numbers, out) == "own"
    assert torch.equal(out, table[numbers])


@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    dim=st.integers(0, 3),
    count=st.integers(1, 12),
    take=st.sampled_from([embedding, index_select, index]),
    how=st.tuples(*[st.sampled_from(["dense", "offset", "gaps"])] * 2),
    is_short=st.booleans(),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**20),
)
def test_whatever_is_taken_of_whatever(
    shape: list[int],
    dim: int,
    count: int,
    take: Callable[..., str],
    how: tuple[str, str],
    is_short: bool,
    dtype: torch.dtype,
    seed: int,
) -> None:
    if take is embedding:
        shape = (shape * 2)[:2]
    dim = dim % len(shape) if take is index_select else 0
    table = lying(table_of(*shape, dtype=dtype), how[0])
    least = -shape[0] if take is index else 0
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randint(least, shape[dim], (count,), generator=generator)
    numbers = numbers.int() if is_short else numbers
    expected = table.index_select(dim, numbers.long() % shape[dim])
    out = lying(torch.zeros_like(expected), how[1])
    memory = torch.empty(0, dtype=dtype).set_(out.untyped_storage())
    before = memory.clone()
    tier = take(table, numbers, out, *((dim,) if take is index_select else ()))
    assert tier == "own" or "gaps" in how
    assert torch.equal(out, expected)
    out.zero_()
    assert torch.equal(memory, before), "it wrote beside its result"


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
def test_any_dimension_is_served(dim: int) -> None:
    table, numbers = table_of(4, 5, 6), torch.tensor([3, 1, 3])
    expected = table.index_select(dim, numbers)
    out = torch.empty_like(expected)
    assert index_select(table, numbers, out, dim) == "own"
    assert torch.equal(out, expected)


def test_negative_numbers_count_from_the_end_where_eagers_do() -> None:
    table, numbers = table_of(4, 5), torch.tensor([-1, -4, 2])
    out = torch.empty(3, 5)
    assert index(table, numbers, out) == "own"
    assert torch.equal(out, table[numbers])


@pytest.mark.parametrize(
    ("take", "eagers", "number"),
    [
        (embedding, lambda table, numbers: torch.nn.functional.embedding(numbers, table), -1),
        (embedding, lambda table, numbers: torch.nn.functional.embedding(numbers, table), 4),
        (index_select, lambda table, numbers: table.index_select(0, numbers), -1),
        (index_select, lambda table, numbers: table.index_select(0, numbers), 4),
        (index, lambda table, numbers: table[numbers], -5),
        (index, lambda table, numbers: table[numbers], 2**40),
    ],
)
def test_a_number_outside_raises_as_eagers(take: Callable[..., str], eagers: Take, number: int) -> None:
    table, out = table_of(4, 5), torch.empty(2, 5)
    with pytest.raises(IndexError) as expected:
        eagers(table, torch.tensor([0, number]))
    with pytest.raises(engine().ReplayFailure) as found:
        take(table, torch.tensor([0, number]), out)
    assert str(expected.value) in str(found.value)
    assert take(table, torch.tensor([0, 3]), out) == "own"
    assert torch.equal(out, table[[0, 3]])


@pytest.mark.parametrize(
    ("take", "args"),
    [
        (embedding, (table_of(400, 90), torch.arange(400))),
        (index, (table_of(4, 5).t(), torch.tensor([1]))),
        (index_select, (table_of(4, 5, 6).transpose(0, 2), torch.tensor([1]))),
        (index, (table_of(4, 5), torch.tensor([True, False, True, True]))),
    ],
    ids=["many", "columns", "permuted", "mask"],
)
def test_others_are_atens(take: Callable[..., str], args: tuple[Tensor, Tensor]) -> None:
    table, numbers = args
    expected = table[numbers]
    out = torch.empty_like(expected)
    assert take(table, numbers, out) != "own"
    assert torch.equal(out, expected)


def test_a_captured_step_raises_and_goes_on() -> None:
    def step(ids: Tensor, table: Tensor) -> Any:
        return torch.nn.functional.embedding(ids, table) * 2

    compiled = torch.compile(step, backend="airgraph", fullgraph=True)
    table = table_of(4, 5)
    with torch.no_grad():
        compiled(torch.tensor([1, 2]), table)
        with pytest.raises(ReplayError, match="index out of range in self"):
            compiled(torch.tensor([1, 4]), table)
        assert torch.equal(compiled(torch.tensor([3, 0]), table), table[[3, 0]] * 2)
    assert [graph["state"] for graph in airgraph.explain().to_dict()["graphs"]] == ["captured"]
