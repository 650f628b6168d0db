"""Tensors of one number that a graph writes, of each dtype: one of float64 is not taken for a number of Python's."""

from pathlib import Path

import pytest
import torch
from doors import both_doors, through
from torch import Tensor, nn


@torch.no_grad()
@both_doors
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64])
def test_a_number_is_counted_up(door: str, dtype: torch.dtype, tmp_path: Path) -> None:
    def counted(count: Tensor) -> Tensor:
        count.add_(1)
        return count * 2

    call, count = through(door, counted, tmp_path), torch.ones((), dtype=dtype)
    assert [call(count).item() for _ in range(3)] == [4, 6, 8]
    assert count.item() == 4


@torch.no_grad()
@both_doors
def test_a_number_is_counted_up_by_numbers_that_vary(door: str, tmp_path: Path) -> None:
    def counted(count: Tensor, by: float, x: Tensor) -> Tensor:
        count.add_(by)
        return count * 2 + x * by

    call, count = through(door, counted, tmp_path), torch.ones((), dtype=torch.float64)
    expected = count.clone()
    for by in (1.5, 2.5, 3.5):
        torch.testing.assert_close(call(count, by, torch.ones(2)), counted(expected, by, torch.ones(2)))
        assert count.item() == expected.item()


@torch.no_grad()
@both_doors
def test_a_module_counts_its_calls(door: str, tmp_path: Path) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros((), dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x + self.calls

    model = Counting()
    call = through(door, model.forward, tmp_path)
    assert [call(torch.zeros(2)).sum().item() for _ in range(3)] == [2, 4, 6]
    assert model.calls.item() == 3


@torch.no_grad()
@both_doors
@pytest.mark.filterwarnings("ignore:airgraph. a call of .* is not cached")
def test_a_number_that_varies_and_is_taken_as_it_is(door: str, tmp_path: Path) -> None:
    def filled(x: Tensor, by: float) -> Tensor:
        return x * torch.tensor(by) + torch.full((6,), by) + torch.full((), by * 2)

    call = through(door, filled, tmp_path, dynamic=True)
    for by in (1.5, 2.5, 3.5, 1.5):
        x = torch.arange(6.0)
        torch.testing.assert_close(call(x, by), filled(x, by))
