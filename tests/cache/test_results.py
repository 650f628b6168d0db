"""What a cached function returns has the structure and the objects that the function's own result has."""

from __future__ import annotations

import math
import warnings
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from cached_functions import cached, equal_to_eager
from torch import Tensor, nn

from airgraph.errors import CacheError

Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Result:
    value: Tensor
    note: str | None = None


def test_what_it_returns_has_its_structure(tmp_path: Path) -> None:
    def everything(x: Tensor, kept: list[Tensor]) -> Any:
        y = x + 1
        return {"y": y, 3: (y, [y * 2, None])}, Pair(y, "text"), Result(x * 3), kept, x.shape[0], x, True

    call = cached(everything, tmp_path)
    x, kept = torch.randn(4), [torch.ones(1)]
    for _ in range(2):
        got, expected = call(x, kept), everything(x, kept)
        assert got[0].keys() == expected[0].keys() and got[0]["y"] is got[0][3][0] is got[1].left
        torch.testing.assert_close(got[0][3][1][0], expected[0][3][1][0])
        assert type(got[1]) is Pair and got[1].right == "text"
        assert type(got[2]) is Result and got[2].note is None
        torch.testing.assert_close(got[2].value, x * 3)
        assert got[3] is kept and got[4] == 4 and got[5] is x and got[6] is True


def test_constants_that_are_only_returned(tmp_path: Path) -> None:
    def hand_back(x: Tensor, name: str, count: int) -> Any:
        return x * 2, name, count

    call = cached(hand_back, tmp_path)
    x = torch.ones(2)
    for name, count in (("a", 3), ("b", 3), ("a", 4), ("a", 3)):
        assert call(x, name, count)[1:] == (name, count)


def test_containers_of_the_model_that_are_returned(tmp_path: Path) -> None:
    class Labelled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.labels = ["a", "b"]
            self.name = "first"

        def forward(self, x: Tensor) -> Any:
            return x * 2, self.labels, self.name

    model = Labelled()
    call = cached(model.forward, tmp_path)
    x = torch.ones(2)
    assert call(x)[1] is model.labels
    model.labels.append("c")
    assert call(x)[1] is model.labels
    model.labels, model.name = ["d"], "second"
    assert call(x)[1] is model.labels and call(x)[2] == "second"


@dataclass
class Doubling:
    value: Tensor

    def __post_init__(self) -> None:
        self.value = self.value * 2


def test_a_class_with_code_of_its_own_is_not_made_twice(tmp_path: Path) -> None:
    def make(x: Tensor) -> Doubling:
        return Doubling(x)

    call = cached(make, tmp_path, strict=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert call(torch.ones(1)).value.item() == 2.0


def test_a_returned_object_is_the_one_it_was_not_one_that_was_the_same(tmp_path: Path) -> None:
    def first(a: Tensor, b: Tensor, x: Tensor) -> Any:
        return x + 1, a

    call = cached(first, tmp_path)
    x, t, u = torch.ones(1), torch.ones(2), torch.zeros(2)
    assert call(t, t, x)[1] is t and call(t, u, x)[1] is t and call(u, t, x)[1] is u

    def empty(x: Tensor, other: Any) -> Any:
        return x * 2, ()

    call = cached(empty, tmp_path)
    assert call(x, ())[1] == () and call(x, (5,))[1] == ()

    model = nn.Module()
    model.labels = ["a"]

    def labelled(x: Tensor) -> Any:
        return Labelled(x * 2, model.labels)

    call = cached(labelled, tmp_path)
    for _ in range(2):
        assert call(x).labels is model.labels
        model.labels[0] = "z"


@dataclass
class Labelled:
    y: Tensor
    labels: list[str]


def test_results_with_more_than_their_fields(tmp_path: Path) -> None:
    def noted(x: Tensor) -> Any:
        made = Labelled(x * 2, ["a"])
        made.note = "more"
        return made

    call = cached(noted, tmp_path, strict=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert call(torch.ones(1)).note == "more"


@dataclass
class Box:
    held: Any
    other: Any = None


def one_list_twice(x: Tensor) -> Any:
    made = [x * 2]
    return made, (made, {"again": made})


def one_box_in_two(x: Tensor) -> Any:
    box = Box([x * 2])
    return Box(box, box), box.held


def test_what_is_one_object_in_the_result_is_one(tmp_path: Path) -> None:
    for _ in range(2):
        # From the file, the second time.
        call = cached(one_list_twice, tmp_path / "list")
        made, (again, named) = call(torch.ones(2))
        assert made is again is named["again"]
        assert call(torch.ones(2))[0] is not made
        outer, held = cached(one_box_in_two, tmp_path / "box")(torch.ones(2))
        assert outer.held is outer.other and outer.held.held is held


def within_itself(x: Tensor) -> Any:
    made: list[Any] = [x * 2]
    made.append(made)
    return made


def test_a_result_within_itself_is_made_without_the_cache(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"a builtins\.list that is within itself"):
        made = cached(within_itself, tmp_path, strict=False)(torch.ones(2))
    assert made[1] is made


NUMBERS: dict[str, Any] = {
    "half, up": lambda n: math.ceil(n / 2),
    "half, down": lambda n: math.floor(n / 2),
    "third": lambda n: math.trunc(n / 3),
    "quarter": lambda n: round(n / 4),
    "by a float": lambda n: int(n * 0.5),
    "root": lambda n: int(n**0.5),
    "high power": lambda n: n**20,
    "power of two": lambda n: 2**n,
    "shifted": lambda n: 1 << n,
    "exclusive or": lambda n: n ^ 3,
    "logarithm": lambda n: int(math.log2(n + 1)),
    "rest": lambda n: n % 4 + n // 3 - min(n, 7),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_from_sizes_is_worked_out_or_the_call_not_cached(name: str, tmp_path: Path) -> None:
    def count(x: Tensor) -> Any:
        x.add_(1)
        return x * 2, NUMBERS[name](x.shape[0])

    with warnings.catch_warnings():
        # Where it is not cached.
        warnings.simplefilter("ignore")
        call = cached(count, tmp_path, strict=False)
        for rows in (5, 6, 9):
            ours, theirs = torch.ones(rows), torch.ones(rows)
            (got, number), (expected, right) = call(ours), count(theirs)
            assert (type(number), number) == (type(right), right)
            torch.testing.assert_close((got, ours), (expected, theirs))


class _KeepsItsShape(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        self.last = x.shape
        return x * 2, [x.shape, {"turned": x.T.shape}, x.shape[1:], tuple(x.shape), x.size()]


@torch.no_grad()
@pytest.mark.parametrize("dynamic", [True, None, False])
def test_shapes_are_those_of_the_call(dynamic: bool | None, tmp_path: Path) -> None:
    model, twin = _KeepsItsShape(), _KeepsItsShape()
    call = cached(model.forward, tmp_path, dynamic=dynamic)
    for shape in ((4, 3), (5, 7), (6, 7), (5, 2)):
        _, found = call(torch.ones(shape))
        assert found == twin(torch.ones(shape))[1] and type(found[0]) is torch.Size
        assert model.last == twin.last and type(model.last) is torch.Size


class _Holder:
    first: Tensor
    second: Tensor

    def one_view(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        view = x[1:]
        self.first, self.second = view, view
        return view, x * 2, view


@torch.no_grad()
def test_one_view_stays_one_object(tmp_path: Path) -> None:
    holder = _Holder()
    first, _, last = cached(holder.one_view, tmp_path)(torch.arange(4.0))
    assert first is last and holder.first is holder.second is first


@torch.no_grad()
def test_a_view_that_counts_from_its_storage_is_not_kept(tmp_path: Path) -> None:
    def absolute(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, x.as_strided((2,), (1,), 1)

    def relative(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, x[1:].as_strided((2,), (1,))

    part = torch.arange(20.0)[5:13]
    with pytest.raises(CacheError, match="counts from the start of its storage"):
        cached(absolute, tmp_path)(torch.arange(8.0))
    call = cached(relative, tmp_path)
    equal_to_eager(call, (torch.arange(8.0),), (part,))
    with pytest.warns(UserWarning, match="is not cached"):
        equal_to_eager(cached(absolute, tmp_path, strict=False), (torch.arange(8.0),), (part,))
