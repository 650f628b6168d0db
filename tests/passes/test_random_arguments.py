"""Random programs on random arguments: at any strides and offsets, overlapping, several of one storage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from doors import through
from random_programs import Program, make_program, make_strided_inputs
from strided_arguments import read_rows, strides_of
from torch import Tensor
from twins import twins

import airgraph

# Each chunk is a test of its own, so that they run in several processes.
_CHUNKS, _PROGRAMS, _FULL_PROGRAMS = 4, 2, 400
_LENGTH = 8


def _step(step: Callable[..., Tensor]) -> Callable[[object], Callable[..., Tensor]]:
    return lambda choose: step


# What can tell how its operand lies; each result has two dimensions again.
_TELLING = [
    ("times its stride", 1, _step(lambda a: a * a.stride(0) - a.stride(1))),
    ("strides", 1, _step(lambda a: strides_of(a).unsqueeze(0))),
    ("rows by stride", 1, _step(lambda a: read_rows(a, a.stride(0), a.shape[0]))),
    ("rows of the turned by stride", 1, _step(lambda a: read_rows(a.t(), a.stride(1), 2))),
    ("as strided", 1, _step(lambda a: a.as_strided(a.shape, a.stride(), a.storage_offset()) + 1)),
    ("made with its strides", 1, _step(lambda a: torch.empty_strided(a.shape, a.stride()).fill_(0.5) + a)),
    ("stride of a new value", 1, _step(lambda a: (b := a * 2) - b.stride(0))),
    ("part", 1, _step(lambda a: a[1:])),
    ("turned", 1, _step(lambda a: a.t())),
]


def _outcome(run: Callable[..., Any], args: list[Tensor]) -> list[Tensor]:
    """Outputs, and the inputs after the call with what lies beside them."""
    given = twins(args)
    out = [value.clone() for value in run(*given)]
    return [*out, *(x.as_strided((x.untyped_storage().nbytes() // x.itemsize,), (1,), 0) for x in given)]


def _equal(ours: list[Tensor], theirs: list[Tensor]) -> str | None:
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        try:
            torch.testing.assert_close(a, b, equal_nan=True)
        except AssertionError as error:
            return f"value {i}: {error}"
    return None


def _torch_can(program: Program, calls: list[list[Tensor]]) -> bool:
    """Whether AOTAutograd, which every backend gets its graphs from, keeps the meaning of the program."""
    torch._dynamo.reset()
    compiled = torch.compile(program, backend="aot_eager", dynamic=False)
    try:
        return all(_equal(_outcome(compiled, args), _outcome(program, args)) is None for args in calls)
    except (torch._dynamo.exc.TorchDynamoException, RuntimeError):
        return False


def _calls(program: Program, seed: int) -> list[list[Tensor]]:
    """Twice where the program was made, elsewhere with other values, with other strides, and as at first."""
    first = make_strided_inputs(seed)
    again = twins(first)
    for tensor in again[4:7]:
        if not torch._debug_has_internal_overlap(tensor):
            tensor.mul_(0.5)
    found = [first, first, again]
    for other in (seed + 1_000_000, seed + 2_000_000):
        args = make_strided_inputs(other)
        try:
            _outcome(program, args)
        except RuntimeError:
            # Such as a view that these strides do not allow.
            continue
        found.append(args)
    return [*found, first]


@torch.no_grad()
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("chunk", range(_CHUNKS))
@pytest.mark.filterwarnings("ignore:airgraph. .* is not cached")
def test_arguments_that_lie_in_any_way_give_the_results_of_eager(
    chunk: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    programs = _FULL_PROGRAMS if request.config.getoption("--full-sweep") else _PROGRAMS
    checked = 0
    for seed in range(chunk * programs, (chunk + 1) * programs):
        more = _TELLING if seed % 2 else ()
        program = make_program(seed, _LENGTH, make_strided_inputs(seed), more)
        calls = _calls(program, seed)
        if not _torch_can(program, calls):
            continue
        torch._dynamo.reset()
        options = {"clone_input": bool(seed % 3)}
        # Through the cached door nobody but airgraph compares how arguments lie.
        door, dynamic = ("cached", "compiled", "cached", "compiled")[seed % 4], seed % 4 > 1
        compiled = through(door, program.__call__, tmp_path / str(seed), dynamic=dynamic, **options)
        eager = airgraph.explain().to_dict()["counters"]["eager_calls"]
        for number, args in enumerate(calls):
            difference = _equal(_outcome(compiled, args), _outcome(program, args))
            assert difference is None, (
                f"seed {seed}, {door}, {dynamic}, {options}, call {number}: {program}\n{difference}"
            )
        checked += 1
        if door == "compiled":
            assert airgraph.explain().to_dict()["counters"]["eager_calls"] == eager
    assert checked >= programs * 2 // 3
