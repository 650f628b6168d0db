"""What cannot be compared at a later start, though it decides a graph, is refused with the reason."""

from __future__ import annotations

import contextvars
import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cached_functions import cached
from torch import Tensor

from airgraph.errors import CacheError, Unwritable
from airgraph.program.held_values import digest_of_value


def test_what_is_too_large_to_be_compared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unwritable, match="too large"):
        digest_of_value([torch.zeros(1 << 20)])
    with pytest.raises(Unwritable, match="more than"):
        digest_of_value([[i] for i in range(30_000)])
    cycle: list[object] = []
    cycle.append(cycle)
    assert digest_of_value(cycle).text != digest_of_value([[]]).text


def test_how_often_a_tensor_was_written_is_not_a_constant(tmp_path: Path) -> None:
    def versions(x: Tensor) -> Tensor:
        return x * x._version

    with pytest.raises(CacheError, match="how often"):
        cached(versions, tmp_path)(torch.ones(2))


def test_attributes_of_a_returned_tensor_are_not_lost(tmp_path: Path) -> None:
    def noted(x: Tensor) -> Tensor:
        y = x * 2
        y.note = 1  # type: ignore[attr-defined]
        return y

    with pytest.raises(CacheError, match="sets attributes of a Tensor"):
        cached(noted, tmp_path)(torch.ones(2))


def hidden(x: Tensor) -> Tensor:
    return x * len(eval("'a' * 2"))


def dated(x: Tensor) -> Tensor:
    return x * (time.localtime(0).tm_hour + 2)


CLASSES = {type(f"Class{number}", (), {"number": number}) for number in range(9)}
CONTEXT = contextvars.ContextVar("CONTEXT", default=2)


def in_the_order_of_addresses(x: Tensor) -> Tensor:
    return x * next(iter(CLASSES)).number


def of_context(x: Tensor) -> Tensor:
    return x * CONTEXT.get()


SPARSE = torch.ones(2).to_sparse()
NUMBER = 2
PRIVATE: dict[str, Any] = {"__name__": "of_nobody", "GAIN": 2}
exec("def of_nobody(x):\n    return x * GAIN\n", PRIVATE)


def of_sparse(x: Tensor) -> Tensor:
    return x * len(SPARSE.shape)


def by_globals_of_a_function(x: Tensor) -> Tensor:
    return x * hidden.__globals__["NUMBER"]


def by_frame(x: Tensor) -> Tensor:
    return x * sys._getframe().f_globals["NUMBER"]


def by_import(x: Tensor) -> Tensor:
    return x * importlib.import_module(__name__).NUMBER


@pytest.mark.parametrize(
    ("below", "reason"),
    [
        (of_sparse, "Tensor, and what it holds cannot be compared"),
        (PRIVATE["of_nobody"], "its module of_nobody is not found again"),
        (by_globals_of_a_function, "uses __globals__"),
        (by_frame, "uses _getframe"),
        (by_import, "uses import_module"),
        (hidden, "uses eval"),
        (dated, "calls localtime"),
        (in_the_order_of_addresses, "the order of CLASSES"),
        (of_context, "ContextVar, and what it holds cannot be compared"),
    ],
)
def test_what_cannot_be_compared_is_refused(below: Callable[[Tensor], Tensor], reason: str, tmp_path: Path) -> None:
    allowed = torch.compiler.allow_in_graph(below)

    def call_below(x: Tensor) -> Tensor:
        return allowed(x) * 2

    with pytest.raises(CacheError, match=reason):
        cached(call_below, tmp_path)(torch.ones(2))
    assert not list(tmp_path.rglob("*.airgraph"))
