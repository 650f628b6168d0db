"""Row programs give what their instructions give one by one."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from own_calls import by_engine, lying, values
from torch import Tensor

from airgraph.program.row_programs import CASTS, run_row_program
from airgraph.runtime.engine.loading import engine, engine_status

pytestmark = pytest.mark.skipif(not engine_status().loaded, reason="the native engine is not here")

FLOATS = tuple(CASTS)
# Of which a single operator has a row function.
MOST_NUMBERS = 1 << 15
NO_COMMON_NUMBERS = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-40, 3e38, -65504.0)
NORM = "float32 0; square 2; mean 3; add 4 #1e-06; rsqrt 5; mul 2 6; {dtype} 7; mul 1 8"
ROPE = "mul 0 1; neg 2; cat 6 3; mul 7 4; add 5 8"


def run(operands: list[Tensor], program: str, out: Tensor, **how: Any) -> str:
    return by_engine("airgraph::row_program", operands[0], operands[1:], program, out=out, **how)


def one_by_one(operands: list[Tensor], program: str) -> Tensor:
    """By a tape for each instruction, with the same row functions."""

    def call(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        expected: Tensor = op(*args, **kwargs)
        name, _, overload = op.name().partition(".")
        # Where numbers lie apart they are left to ATen.
        out = torch.empty(expected.shape, dtype=expected.dtype)
        args = tuple(each.contiguous() if isinstance(each, Tensor) else each for each in args)
        by_engine(name, *args, out=out, overload=overload, **kwargs)
        return out

    made: Tensor = run_row_program(operands, program, call)
    return made


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(576,), (1, 1, 576), (3, 5, 40), (1, 33), (700, 9), (40, 1001)], ids=str)
def test_a_norm(shape: tuple[int, ...], dtype: torch.dtype, threads: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = values(*shape, dtype=dtype, generator=generator), values(shape[-1], dtype=dtype, generator=generator)
    program = NORM.format(dtype=CASTS[dtype])
    out = torch.empty_like(x)
    torch.set_num_threads(threads)
    try:
        assert run([x, weight], program, out) == "own"
    finally:
        torch.set_num_threads(1)
    if x.numel() <= MOST_NUMBERS:
        assert torch.equal(out, one_by_one([x, weight], program))
    torch.testing.assert_close(out, run_row_program([x, weight], program))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("heads", [1, 9])
@pytest.mark.parametrize("length", [1, 7])
def test_a_rotation(heads: int, length: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x = values(2, length, heads, 64, dtype=dtype, generator=generator).transpose(1, 2)
    cos, sin = (values(2, 1, length, 64, dtype=dtype, generator=generator) for _ in range(2))
    out = torch.empty_like(x)
    operands = [x, cos, x[..., 32:], x[..., :32], sin]
    assert run(operands, ROPE, out) == "own"
    assert torch.equal(out, run_row_program(operands, ROPE))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(1,), (2048,), (2049,), (3, 1536), (64, 3000), (70000,)], ids=str)
def test_long_rows_are_divided(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    gate, up = (values(*shape, dtype=dtype, generator=generator) for _ in range(2))
    out = torch.empty_like(gate)
    assert run([gate, up], "silu 0; mul 2 1", out) == "own"
    torch.testing.assert_close(out, run_row_program([gate, up], "silu 0; mul 2 1"))
    assert run([gate, up], "add 0 #0.1; sub 2 1; relu 3", out) == "own"
    assert torch.equal(out, run_row_program([gate, up], "add 0 #0.1; sub 2 1; relu 3"))


def made(seed: int, *, has_no_common_numbers: bool = False) -> tuple[list[Tensor], str]:
    """A random program with its operands, whatever their places in memory, of one type and of casts in between."""
    choose = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    dtype = choose.choice(FLOATS)
    count = choose.choice([1, 2, 7, 16, 33, 64, 130, 1200])
    outside = [choose.choice([1, 1, 2, 3]) for _ in range(choose.randint(0, 3))]
    operands: list[Tensor] = []
    for _ in range(choose.randint(1, 4)):
        of_row = count if not operands else choose.choice([count, count, 1])
        shape = [size if not operands else choose.choice([size, size, 1]) for size in outside]
        shape = shape[choose.randint(0, len(shape)) if operands else 0 :]
        value = values(*shape, of_row, dtype=dtype, generator=generator)
        for _ in range(choose.randint(1, 4) if has_no_common_numbers else 0):
            value.view(-1)[choose.randrange(value.numel())] = choose.choice(NO_COMMON_NUMBERS)
        value = lying(value, choose.choice(["dense", "offset", "gaps"]))
        if choose.random() < 0.2:
            value = value.transpose(0, -1).contiguous().transpose(0, -1)
        if choose.random() < 0.1:
            value = value[..., :1].expand(*shape, of_row)
        operands.append(value)
    known = list(operands)
    parts: list[str] = []

    def add(text: str) -> None:
        parts.append(text)
        known.append(run_row_program(operands, "; ".join(parts)))

    for _ in range(choose.randint(1, 8)):
        place = choose.choice([0, *range(len(operands), len(known))])
        kind = choose.choice(["one", "one", "two", "two", "number", "cast", "mean", "cat"])
        alike = [i for i, each in enumerate(known) if each.dtype is known[place].dtype]
        fits = [i for i in alike if 1 in (counts := {known[i].shape[-1], known[place].shape[-1]}) or len(counts) == 1]
        if kind == "one":
            add(f"{choose.choice(['neg', 'silu', 'square', 'relu'])} {place}")
        elif kind == "two":
            add(f"{choose.choice(['add', 'sub', 'mul', 'div'])} {place} {choose.choice(fits)}")
        elif kind == "number":
            add(f"{choose.choice(['add', 'sub', 'mul', 'div'])} {place} #{choose.choice([2.0, 0.1, -1e-3])!r}")
        elif kind == "cast":
            other = choose.choice([each for each in FLOATS if each is not known[place].dtype])
            add(f"{CASTS[other]} {place}")
        elif kind == "mean" and known[place].shape[-1] > 1:
            add(f"mean {place}")
        elif kind == "cat" and known[place].shape[-1] < 3000:
            whole = [i for i in alike if known[i].shape[:-1] == known[place].shape[:-1]]
            add(f"cat {' '.join(str(choose.choice(whole)) for _ in range(choose.randint(1, 2)))} {place}")
    if not parts:
        add("neg 0")
    return operands, "; ".join(parts)


@given(seed=st.integers(0, 2**32), has_no_common_numbers=st.booleans())
def test_random_programs(seed: int, has_no_common_numbers: bool) -> None:
    operands, program = made(seed, has_no_common_numbers=has_no_common_numbers)
    eagers = run_row_program(operands, program)
    out = torch.full_like(eagers, 7).contiguous()
    assert run(operands, program, out) == "own", program
    torch.testing.assert_close(out, one_by_one(operands, program), rtol=0, atol=0, equal_nan=True, msg=program)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_comes_through_as_in_eager(bad: float, dtype: torch.dtype) -> None:
    """To the end of its own row, in programs that models have, at the begin, within and at the end of vectors."""
    for place in (0, 17, 39):
        x, weight = torch.randn(3, 40).to(dtype), torch.randn(40).to(dtype)
        x[1, place] = bad
        for program in (NORM.format(dtype=CASTS[dtype]), "silu 0; mul 2 1", "neg 0; cat 0 2; relu 3"):
            expected = run_row_program([x, weight], program)
            out = torch.empty_like(expected)
            assert run([x, weight], program, out) == "own"
            assert torch.equal(out.isnan(), expected.isnan()) and torch.equal(out.isinf(), expected.isinf())
            assert out[::2].isfinite().all()


@pytest.mark.parametrize(
    "program",
    ["mean 0; square 0; mean 2; cat 1 3", "mean 0; neg 1; cat 2 1", "neg 0; mean 1; mean 0; cat 3 2"],
)
def test_a_cat_may_lie_where_an_operand_lies(program: str) -> None:
    x = torch.randn(50, 2)
    expected = run_row_program([x], program)
    assert run([x], program, x) == "own"
    torch.testing.assert_close(x, expected)


@pytest.mark.parametrize("program", ["neg 0", "mean 0; mul 0 1", "neg 0; relu 1; cat 1 2"])
def test_a_result_may_lie_apart(program: str) -> None:
    x = torch.randn(5, 40)
    expected = run_row_program([x], program)
    out = torch.full((*expected.shape, 3), 7.0)
    assert run([x], program, out[..., 1]) == "own"
    torch.testing.assert_close(out[..., 1], expected)
    assert (out[..., ::2] == 7).all()


def test_a_mean_of_long_rows_has_two_threads() -> None:
    x = torch.randn(2048, 4096)
    out = torch.empty(2048, 1)
    torch.set_num_threads(2)
    try:
        assert run([x], "square 0; mean 1; rsqrt 2", out) == "own"
    finally:
        torch.set_num_threads(1)
    torch.testing.assert_close(out, x.square().mean(-1, keepdim=True).rsqrt())


@given(seed=st.integers(0, 2**32))
@example(seed=1305)
def test_a_result_may_lie_where_an_operand_lies(seed: int) -> None:
    operands, program = made(seed)
    # Not eager's: a mean of numbers that nearly cancel is another where they are added up in another order.
    expected = torch.empty_like(run_row_program(operands, program))
    assert run(operands, program, expected) == "own", program
    for out in operands:
        if (out.shape, out.stride(), out.dtype) == (expected.shape, expected.stride(), expected.dtype):
            assert run(operands, program, out) == "own", program
            torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True, msg=program)
            break


@pytest.mark.parametrize(
    "program", ["", "neg", "neg 1", "neg 0 0", "neg -1", "add 0", "add #1 0", "turn 0", "neg 0x", "neg 0 #2"]
)
def test_what_is_no_program_is_not_run(program: str) -> None:
    x = torch.randn(3, 4)
    with pytest.raises(engine().ReplayFailure, match=f"'{program.split('; ')[-1]}' is no instruction"):
        run([x], program, torch.empty_like(x))
    # The process goes on.
    assert run([x], "neg 0", torch.empty_like(x)) == "own"


def test_a_slot_of_another_form_is_refused() -> None:
    with pytest.raises(engine().ReplayFailure, match="slot was captured"):
        run([torch.randn(3, 4)], "neg 0", torch.empty(3, 1))
