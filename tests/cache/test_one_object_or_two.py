"""What a function finds by two paths is one object or two: which of the two is a condition of each call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cached_functions import cached
from torch import Tensor, nn

CONFIG: dict[str, int] = {"n": 0}
WEIGHT = torch.full((3,), 5.0)


class Plain:
    def __init__(self, **held: Any) -> None:
        vars(self).update(held)


OBJECT = Plain(held={"n": 1}, tensor=torch.full((3,), 2.0))


def _writes_both(x: Tensor, pair: list[dict[str, int]]) -> Tensor:
    pair[0]["n"] = 1
    pair[1]["n"] = 2
    return x * pair[0]["n"]


def _writes_what_is_global(x: Tensor, given: dict[str, int]) -> Tensor:
    given["n"] = 2
    return x * CONFIG["n"]


def _writes_what_lies_in_a_global(x: Tensor, given: dict[str, int]) -> Tensor:
    given["n"] = 2
    return x * OBJECT.held["n"]


def _takes_a_global_tensor(x: Tensor, y: Tensor) -> Tensor:
    return x * y + WEIGHT


def _takes_a_tensor_of_a_global(x: Tensor, y: Tensor) -> Tensor:
    return x * y + OBJECT.tensor


def _pairs(is_one: bool) -> list[dict[str, int]]:
    first: dict[str, int] = {"n": 5}
    return [first, first if is_one else {"n": 6}]


CASES: list[tuple[Callable[..., Tensor], Callable[[bool], Any]]] = [
    (_writes_both, _pairs),
    (_writes_what_is_global, lambda is_one: CONFIG if is_one else {"n": 5}),
    (_writes_what_lies_in_a_global, lambda is_one: OBJECT.held if is_one else {"n": 5}),
    (_takes_a_global_tensor, lambda is_one: WEIGHT if is_one else torch.ones(3)),
    (_takes_a_tensor_of_a_global, lambda is_one: OBJECT.tensor if is_one else torch.ones(3)),
]


@torch.no_grad()
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].__name__)
def test_a_graph_of_one_serves_no_call_with_two_nor_the_other_way_round(
    case: tuple[Callable[..., Tensor], Callable[[bool], Any]], first: bool, tmp_path: Path
) -> None:
    function, argument = case
    x = torch.arange(3.0)
    for start in range(2):
        call = cached(function, tmp_path)
        for is_one in (first, not first, first):
            # What is written by one call must not hide what the next would read.
            CONFIG["n"], OBJECT.held["n"] = 7, 9
            made = call(x, argument(is_one))
            CONFIG["n"], OBJECT.held["n"] = 7, 9
            torch.testing.assert_close(made, function(x, argument(is_one)))
        assert call.counts().traces == (2 if start == 0 else 0)


class _Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Plain(v=0), Plain(v=0)

    def forward(self, x: Tensor) -> Tensor:
        self.first.v = 1
        self.second.v = 2
        return x * self.first.v


@torch.no_grad()
def test_attributes_that_become_one_object(tmp_path: Path) -> None:
    model = _Two()
    call = cached(model.forward, tmp_path)
    assert call(torch.ones(2)).tolist() == [1.0, 1.0]
    model.second = model.first
    assert call(torch.ones(2)).tolist() == [2.0, 2.0]
    model.second = Plain(v=0)
    assert call(torch.ones(2)).tolist() == [1.0, 1.0]
