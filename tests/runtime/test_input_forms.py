"""What is copied into a graph, what is used where it lies: no argument is taken for another, or for a part of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from doors import both_doors, through
from torch import Tensor, nn

_KEPT = {"clone_input": False, "on_input_move": "copy"}


def row(count: int) -> Tensor:
    return torch.arange(float(count))


def add_to(x: Tensor, cache: Tensor) -> Tensor:
    cache.add_(x)
    return cache * 2


@torch.no_grad()
@both_doors
def test_a_kept_tensor_comes_back_as_one_that_is_written(door: str, tmp_path: Path) -> None:
    call = through(door, add_to, tmp_path, **_KEPT)
    kept = row(4)
    call(kept, row(4) + 100)
    expected = kept.clone()
    torch.testing.assert_close(call(row(4) + 10, kept), add_to(row(4) + 10, expected))
    torch.testing.assert_close(kept, expected)


@torch.no_grad()
@both_doors
def test_a_weight_comes_to_lie_in_a_kept_tensor(door: str, tmp_path: Path) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(row(4))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.weight

    model, kept = Model(), row(4)
    call = through(door, model.forward, tmp_path, **_KEPT)
    call(kept)
    model.weight.data = kept
    torch.testing.assert_close(call(row(4) + 10), model(row(4) + 10))


@torch.no_grad()
@both_doors
def test_tensors_that_overlap_are_not_kept(door: str, tmp_path: Path) -> None:
    def both(x: Tensor, y: Tensor) -> Tensor:
        return x * 1 + y * 10

    call = through(door, both, tmp_path, **_KEPT)
    memory = row(12)
    for x, y in ((memory[:4], memory[2:6]), (row(4) + 100, row(4) + 10), (memory[:4], memory[2:6])):
        torch.testing.assert_close(call(x, y), both(x, y))


@torch.library.custom_op("airgraph_tests::read_at", mutates_args=())
def read_at(x: Tensor, offset: int) -> Tensor:
    """Two numbers of the storage, as a kernel that is given a pointer to its beginning reads them."""
    return torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())[offset : offset + 2].clone()


@read_at.register_fake
def _(x: Tensor, offset: int) -> Tensor:
    return x.new_empty(2)


@torch.no_grad()
@both_doors
@pytest.mark.parametrize("clone_input", [True, False])
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.ops.airgraph_tests.read_at(x, x.storage_offset()),
        lambda x: torch.ops.airgraph_tests.read_at(x, 0),
        lambda x: torch.ops.airgraph_tests.read_at(x[1:], x[1:].storage_offset()),
        lambda x: torch.ops.airgraph_tests.read_at(x.unbind(0)[2].expand(3), x.unbind(0)[2].storage_offset()),
    ],
    ids=["its offset", "the beginning", "a view's offset", "an element's offset"],
)
@pytest.mark.sampled
def test_an_operator_that_reads_the_storage(
    function: Callable[[Tensor], Tensor], dynamic: bool, clone_input: bool, door: str, tmp_path: Path
) -> None:
    call = through(door, function, tmp_path, dynamic=dynamic, clone_input=clone_input)
    memory = row(20)
    for x in (memory[:4], memory[4:8], memory[2:7], memory[10:14], row(4)):
        torch.testing.assert_close(call(x), function(x))


def add_and_double(a: Tensor, b: Tensor) -> Tensor:
    a.add_(1)
    b.mul_(2)
    return a.sum()


@torch.no_grad()
@both_doors
def test_arguments_that_overlap_at_the_first_call(door: str, tmp_path: Path) -> None:
    call = through(door, add_and_double, tmp_path)
    places: list[Callable[[Tensor], tuple[Any, ...]]] = [
        lambda memory: (memory[:4], memory[2:6]),
        lambda memory: (memory[:4].clone(), memory[4:].clone()),
        lambda memory: (memory[:4], memory[4:]),
        lambda memory: (memory[1:5], memory[:4]),
    ]
    for place in (*places, *places):
        ours, theirs = row(8), row(8)
        torch.testing.assert_close(call(*place(ours)), add_and_double(*place(theirs)))
        torch.testing.assert_close(ours, theirs)
