"""A cached call changes the same objects as the function: attributes that it writes, and nothing else."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from cached_functions import cached
from torch import Tensor, nn

from airgraph.errors import CacheError


class Held:
    def __init__(self) -> None:
        self.count = 0
        self.value: Tensor | None = torch.zeros(2)
        self.text = "before"


def both(function: Any, tmp_path: Path, *sizes: int) -> tuple[Any, Held]:
    """Call it with objects of its own and compare each time; returns the cached function and its object."""
    call = cached(function, tmp_path)
    ours, theirs = Held(), Held()
    for size in sizes:
        x = torch.randn(size)
        torch.testing.assert_close(call(x, ours), function(x, theirs))
        assert vars(ours).keys() == vars(theirs).keys()
        for name, value in vars(theirs).items():
            torch.testing.assert_close(vars(ours)[name], value) if isinstance(value, Tensor) else None
            assert isinstance(value, Tensor) or vars(ours)[name] == value
    return call, ours


def test_tensors_constants_and_numbers_are_written(tmp_path: Path) -> None:
    def step(x: Tensor, held: Held) -> Tensor:
        held.count += x.shape[0]
        held.value = x * 2
        held.text = "after"
        held.more = None  # type: ignore[attr-defined]
        return x + held.count

    call, held = both(step, tmp_path, 2, 3, 2, 7)
    assert held.count == 14 and len(call.files) == 1


def test_all_is_read_before_anything_is_written(tmp_path: Path) -> None:
    def swap(x: Tensor, held: Held) -> Tensor:
        held.value, held.before = x + 1, held.value  # type: ignore[attr-defined]
        return x * 2

    both(swap, tmp_path, 2, 2, 2)


def test_what_is_returned_and_written_is_one_tensor(tmp_path: Path) -> None:
    def keep(x: Tensor, held: Held) -> Tensor:
        held.value = x * 2
        return held.value

    call = cached(keep, tmp_path)
    held = Held()
    for _ in range(3):
        result = call(torch.ones(3), held)
        assert result is held.value


def test_what_was_written_stays_as_it_is_at_later_calls(tmp_path: Path) -> None:
    def keep(x: Tensor, held: Held) -> Tensor:
        held.value = x * 2
        return x + 1

    call = cached(keep, tmp_path)
    several = [Held() for _ in range(4)]
    for number, held in enumerate(several):
        call(torch.full((3,), float(number)), held)
    for number, held in enumerate(several):
        torch.testing.assert_close(held.value, torch.full((3,), 2.0 * number))


def test_only_numbers_are_computed(tmp_path: Path) -> None:
    def count(x: Tensor, held: Held) -> Tensor:
        held.count += 1
        return x

    both(count, tmp_path, 2, 2, 3)


def test_numbers_of_a_module(tmp_path: Path) -> None:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = 0
            self.inner = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            self.rows = x.shape[0]
            return self.inner(x)

    model = Rows()
    call = cached(model.forward, tmp_path)
    for rows in (3, 4, 3):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(call(x), model.inner(x).detach())
        assert model.rows == rows
    assert len(call.files) == 1


def test_tracing_leaves_all_as_it_was(tmp_path: Path) -> None:
    """The value is written once, by the call that was traced, whatever comes after."""

    def step(x: Tensor, held: Held) -> Tensor:
        held.count += 1
        held.value = x[x > 0]
        return x

    call = cached(step, tmp_path)
    held = Held()
    before = copy.copy(vars(held))
    with pytest.raises(CacheError):
        call(torch.ones(2), held)
    assert vars(held) == before


class Watched:
    """Has code of its own for writing."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


class WithProperty:
    def __init__(self) -> None:
        self._value = 0

    @property
    def value(self) -> int:
        return self._value

    @value.setter
    def value(self, value: int) -> None:
        self._value = value


GLOBAL = Held()


def to_global(x: Tensor) -> Tensor:
    GLOBAL.count += 1
    return x + 1


def test_what_is_not_written_is_named(tmp_path: Path) -> None:
    def with_code(x: Tensor, held: Any) -> Tensor:
        held.value = x * 2
        return x + 1

    class Model(nn.Module):
        kept: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            self.kept = x * 2
            return x + 1

    def grows(x: Tensor, held: Any) -> Tensor:
        held.append(x * 2)
        return x + 1

    def opaque(x: Tensor, held: Any) -> Tensor:
        held.value = Held
        return x + 1

    x = torch.ones(2)
    for function, arguments, reason in (
        (with_code, (x, Watched()), "its own way to set attributes"),
        (Model().forward, (x,), "the function changes"),
        (grows, (x, []), "the function changes"),
        (opaque, (x, Held()), "an object of type builtins.type"),
        (to_global, (x,), "outside its arguments"),
    ):
        with pytest.raises(CacheError, match=reason):
            cached(function, tmp_path)(*arguments)  # type: ignore[arg-type]
    assert GLOBAL.count == 0


def test_a_property_is_set_by_its_own_code(tmp_path: Path) -> None:
    def step(x: Tensor, held: Any) -> Tensor:
        held.value = held.value + x.shape[0]
        return x + 1

    call = cached(step, tmp_path)
    held = WithProperty()
    for total in (2, 4, 6):
        call(torch.ones(2), held)
        assert held.value == total


def test_sizes_that_are_returned(tmp_path: Path) -> None:
    def sizes(x: Tensor) -> Any:
        return x * 2, x.shape[0] * 3 + 1, x.size()

    call = cached(sizes, tmp_path)
    for size in (2, 5, 2):
        x = torch.ones(size)
        result = call(x)
        assert result[1:] == sizes(x)[1:] and type(result[2]) is torch.Size and type(result[1]) is int
    assert len(call.files) == 1


class Flagged:
    flag = True


def set_what_the_class_has(x: Tensor, held: Flagged) -> Tensor:
    held.flag = True
    return x + 1


def test_a_write_of_what_the_class_has_is_a_write(tmp_path: Path) -> None:
    call = cached(set_what_the_class_has, tmp_path)
    for _ in range(3):
        held = Flagged()
        call(torch.ones(2), held)
        call(torch.ones(2), held)
        assert vars(held) == {"flag": True}


class Node:
    items: list[Tensor]


def keep_and_return(x: Tensor, node: Node) -> list[Tensor]:
    node.items = [x * 2]
    return node.items


def test_what_is_written_and_returned_is_one_object(tmp_path: Path) -> None:
    for _ in range(2):
        call = cached(keep_and_return, tmp_path)
        node = Node()
        assert call(torch.ones(2), node) is node.items
