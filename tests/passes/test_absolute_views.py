"""`as_strided` counts from the start of a storage: what it sees is not put in the place of something else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor


def _absolute(t: Tensor) -> Tensor:
    return torch.as_strided(t, (2, 2), (2, 1), 2)


def _part_of_an_intermediate(x: Tensor, y: Tensor) -> Tensor:
    return _absolute(torch.relu((x + 1).chunk(2)[1])) * 2


def _part_of_a_cat(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    second = torch.sin(y)
    return torch.cat([torch.relu(y), second]) * 2, _absolute(second).cos()


def _what_an_input_is_filled_with(x: Tensor, y: Tensor) -> Tensor:
    made = torch.sin(y)
    x[4:8] = made
    return _absolute(made) * 2


def _through_another_view(x: Tensor, y: Tensor) -> Tensor:
    return _absolute(y.clone()[1:].view(-1)) * 2


def _written_through_it(x: Tensor, y: Tensor) -> Tensor:
    copy = y.clone()
    _absolute(copy).add_(1)
    return copy * 2


_PROGRAMS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "clone": lambda x, y: _absolute(y.clone()) * 2,
    "times one": lambda x, y: _absolute(y * 1) * 2,
    "cast": lambda x, y: _absolute(y.to(torch.float32, copy=True)) * 2,
    "copy over zeros": lambda x, y: _absolute(torch.zeros_like(y).copy_(y)) * 2,
    "cat of one": lambda x, y: _absolute(torch.cat([y])) * 2,
    "scatter": lambda x, y: torch.as_strided_scatter(y.clone(), torch.ones(2, 2), (2, 2), (2, 1), 2) * 2,
    "part of an intermediate": _part_of_an_intermediate,
    "part of a cat": _part_of_a_cat,
    "what an input is filled with": _what_an_input_is_filled_with,
    "through another view": _through_another_view,
    "written through it": _written_through_it,
}


@torch.no_grad()
@pytest.mark.parametrize("name", _PROGRAMS)
def test_what_is_seen_from_the_start_of_its_storage_stays(name: str) -> None:
    program = _PROGRAMS[name]
    compiled = torch.compile(program, backend="airgraph", fullgraph=True, dynamic=False)
    base = torch.arange(40.0).view(20, 2) / 10
    for start in (4, 2, 6, 4):
        x, again = torch.arange(16.0).view(8, 2), torch.arange(16.0).view(8, 2)
        ours, theirs = compiled(x, base.clone()[start : start + 4]), program(again, base.clone()[start : start + 4])
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)
        assert torch.equal(x, again)
