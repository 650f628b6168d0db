"""Warnings point at the user's own lines: a compiled program, the call of a cached one."""

import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import airgraph


def _warned_at(call: Callable[[], Any], word: str) -> list[tuple[str, int]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [(each.filename, each.lineno) for each in caught if word in str(each.message)]


def _line_of(function: Callable[..., Any], line: int = 1) -> tuple[str, int]:
    return __file__, inspect.getsourcelines(function)[1] + line


@torch.no_grad()
def test_a_capture_that_is_refused_is_warned_of_where_the_program_is() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x + 1).exp() * 2

    compiled = torch.compile(program, backend="airgraph", options={"memory_budget": 1 << 16})
    assert _warned_at(lambda: compiled(torch.ones(1 << 20)), "runs eagerly") == [_line_of(program, 0)]


@torch.no_grad()
def test_a_call_that_is_not_cached_is_warned_of_where_it_is(tmp_path: Path) -> None:
    cached = airgraph.inference.cache_compile(lambda x: x + id(x) % 2, cache_dir=str(tmp_path))

    def call() -> None:
        cached(torch.ones(3))

    assert _warned_at(call, "is not cached") == [_line_of(call)]
