"""Products of one row that follow one another are one loop, which threads share once; each is what it is alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from own_calls import append, by_engine
from torch import Tensor

from airgraph.runtime.engine.loading import engine

_K = 320


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def _weight(rows: int, dtype: torch.dtype = torch.float32) -> Tensor:
    weight = torch.randint(-9, 9, (rows, _K), dtype=dtype) if dtype is torch.int8 else torch.randn(rows, _K).to(dtype)
    return weight.t()


def _replayed(calls: list[tuple[Any, ...]], outs: list[Tensor]) -> int:
    """How many of the calls ran with an earlier one."""
    tape = engine().Tape()
    for call, out in zip(calls, outs, strict=True):
        assert append(tape, *call, out=out) == "own"
    for _ in range(20):
        tape.replay()
    return int(tape.taken)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [1, 3])
def test_each_is_bit_for_bit_what_it_is_alone(threads: int, dtype: torch.dtype, rows: int) -> None:
    x = torch.randn(rows, _K).to(dtype)
    calls: list[tuple[Any, ...]] = [
        ("aten::mm", x, _weight(512, dtype)),
        ("aten::mm", x, _weight(96, dtype)),
        ("aten::addmm", torch.randn(257).to(dtype), x, _weight(257, dtype)),
    ]
    outs = [torch.empty(rows, call[-1].shape[1], dtype=dtype) for call in calls]
    assert _replayed(calls, outs) == 2
    for call, out in zip(calls, outs, strict=True):
        alone = torch.empty_like(out)
        by_engine(*call, out=alone)
        assert torch.equal(out, alone)


def test_weights_of_int8_with_scales(threads: int) -> None:
    x = torch.randn(1, _K).bfloat16()
    calls = [("airgraph::mixed_mm", x, _weight(n, torch.int8), torch.rand(n).bfloat16()) for n in (512, 300)]
    outs = [torch.empty(1, n, dtype=torch.bfloat16) for n in (512, 300)]
    assert _replayed(calls, outs) == 1
    for call, out in zip(calls, outs, strict=True):
        alone = torch.empty_like(out)
        by_engine(*call, out=alone)
        assert torch.equal(out, alone)


@pytest.mark.parametrize("way", ["read_by_the_next", "written_over_a_weight", "written_twice"])
def test_what_one_writes_and_another_uses_is_in_order(threads: int, way: str) -> None:
    """Asked where they lie at each replay: also arguments of the caller are written."""
    x, first, second = torch.randn(1, _K), torch.randn(_K, _K), torch.randn(_K, _K)
    made = torch.empty(1, _K)
    calls: list[tuple[Any, ...]] = [("aten::mm", x, first.t()), ("aten::mm", x, second.t())]
    outs = [made, torch.empty(1, _K)]
    if way == "read_by_the_next":
        calls[1] = ("aten::addmm", made, x, second.t())
    elif way == "written_over_a_weight":
        outs[1] = first[:1]
    else:
        outs[1] = made
    tape = engine().Tape()
    for call, out in zip(calls, outs, strict=True):
        append(tape, *call, out=out)
    assert tape.taken == 1
    kept = first.clone()
    products = x @ kept.t(), x @ second.t()
    for _ in range(20):
        first.copy_(kept)
        tape.replay()
        if way != "written_twice":
            torch.testing.assert_close(made, products[0], rtol=1e-4, atol=1e-4)
        last = products[0] + products[1] if way == "read_by_the_next" else products[1]
        torch.testing.assert_close(outs[1], last, rtol=1e-4, atol=1e-4)


def test_products_of_other_rows_are_loops_of_their_own() -> None:
    calls = [("aten::mm", torch.randn(1, _K), _weight(300)) for _ in range(2)]
    assert _replayed(calls, [torch.empty(1, 300) for _ in calls]) == 0


def test_a_timeline_tells_them_apart() -> None:
    x = torch.randn(1, _K)
    tape = engine().Tape()
    for n in (512, 96):
        append(tape, "aten::mm", x, _weight(n), out=torch.empty(1, n))
    assert tape.taken == 1
    assert len(tape.timeline(3)) == 2
    assert tape.taken == 0


def _loops(weights: list[Tensor], rows: int = 1, threads: int = 2) -> int:
    """How many loops of each replay threads may share."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        tape = engine().Tape()
        x = torch.randn(rows, _K).to(weights[0].dtype if weights[0].is_floating_point() else torch.bfloat16)
        for weight in weights:
            name, extra = ("aten::mm", ()) if weight.dtype is x.dtype else ("airgraph::mixed_mm", (None,))
            out = torch.empty(rows, weight.shape[1], dtype=x.dtype)
            assert append(tape, name, x, weight, *extra, out=out) == "own"
        assert tape.shared_loops == 0
        for _ in range(10):
            tape.replay()
        loops, rest = divmod(tape.shared_loops, 10)
        assert rest == 0
        return int(loops)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
@pytest.mark.parametrize("rows", [1, 8])
def test_only_what_is_worth_a_second_thread_is_shared(rows: int, dtype: torch.dtype) -> None:
    """By what is read: a part for one thread is of 64 kB."""
    rows_of_a_part = 64 * 1024 // (_K * dtype.itemsize)
    assert _loops([_weight(rows_of_a_part - 8, dtype)], rows) == 0
    assert _loops([_weight(2 * rows_of_a_part + 8, dtype)], rows) == 1


def test_small_products_are_shared_where_together_they_are_worth_it() -> None:
    small = [_weight(48) for _ in range(4)]
    assert _loops(small[:2]) == 0
    assert _loops(small) == 1


def test_on_one_thread_nothing_is_shared() -> None:
    assert _loops([_weight(2000)], threads=1) == 0
