"""What tracing could tell from another is told apart at each call too: Dynamo's guards mean more than their text."""

from __future__ import annotations

import collections
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from cached_functions import cached
from torch import Tensor, nn


def leaf() -> Tensor:
    return torch.ones(3, requires_grad=True)


def of_traits(x: Tensor) -> Tensor:
    if x.requires_grad:
        x = x + 1
    if not x.is_leaf:
        x = x + 10
    if isinstance(x, nn.Parameter):
        return x * 100
    return x * 1


@pytest.mark.parametrize("inference", [False, True])
def test_traits_of_a_tensor(tmp_path: Path, inference: bool) -> None:
    call = cached(of_traits, tmp_path)
    parameter = nn.Parameter(torch.ones(3))
    tensors = [torch.ones(3), leaf(), leaf() * 1, parameter, nn.Parameter(torch.ones(3), requires_grad=False)]
    for x in (*tensors, *reversed(tensors)):
        with torch.inference_mode(inference):
            result = call(x)
        with torch.no_grad():
            torch.testing.assert_close(result, of_traits(x))


def test_a_gradient_function(tmp_path: Path) -> None:
    def without(x: Tensor) -> Tensor:
        return x * 2 if x.grad_fn is None else x * 3

    # Dynamo does not trace this for tensors that have one.
    call = cached(without, tmp_path, strict=False)
    for x in (torch.ones(3), leaf(), leaf() * 1, torch.ones(3)):
        torch.testing.assert_close(call(x), without(x).detach())


def test_a_parameter_that_is_frozen_later(tmp_path: Path) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.weight * (2 if self.weight.requires_grad else 3)

    model = Model()
    call = cached(model.forward, tmp_path)
    for wanted in (True, False, True):
        model.weight.requires_grad_(wanted)
        torch.testing.assert_close(call(torch.ones(3)), model(torch.ones(3)).detach())


class Pair(NamedTuple):
    first: int
    second: int


@pytest.mark.parametrize(
    "given",
    [
        ([1, 2], (1, 2), collections.deque([1, 2]), Pair(1, 2)),
        ({1, 2}, frozenset({1, 2})),
        ([], (), "", set(), {}),
        ({"a": 1}, collections.OrderedDict(a=1)),
        (1, True, 1.0),
    ],
    ids=str,
)
def test_containers_of_one_length(given: tuple[Any, ...], tmp_path: Path) -> None:
    def named(x: Tensor, held: Any) -> Tensor:
        kinds = (list, tuple, collections.deque, set, frozenset, str, dict, bool, int, float)
        for number, kind in enumerate(kinds):
            if isinstance(held, kind):
                x = x * (number + 2)
        return x + 100 if type(held) is Pair else x

    call = cached(named, tmp_path)
    for held in (*given, *reversed(given)):
        torch.testing.assert_close(call(torch.ones(2), held), named(torch.ones(2), held), msg=repr(held))


HELD: Any = None


@pytest.mark.parametrize("place", ["module", "nested", "global"])
def test_containers_of_one_length_that_are_held(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Holder(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            held = self.held if place == "module" else self.nested["in"][0] if place == "nested" else HELD
            for number, kind in enumerate((list, tuple, collections.deque, str, dict)):
                if isinstance(held, kind):
                    x = x * (number + 2)
            return x + 100 if type(held) is Pair else x

    holder = Holder()
    call = cached(holder.forward, tmp_path)
    kinds = ([1, 2], (1, 2), Pair(1, 2), collections.deque([1, 2]), "ab", {1: 1, 2: 2})
    for held in (*kinds, *reversed(kinds)):
        holder.held, holder.nested = held, {"in": [held]}
        monkeypatch.setattr(sys.modules[__name__], "HELD", held)
        torch.testing.assert_close(call(torch.ones(2)), holder(torch.ones(2)), msg=repr(held))


@pytest.mark.parametrize("dynamic", [True, False, None])
@pytest.mark.parametrize("held", ["argument", "in a list", "buffer"])
def test_strides_of_single_elements(held: str, dynamic: bool | None, tmp_path: Path) -> None:
    class Holder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("x", None)

        def forward(self, given: Any = None) -> Tensor:
            x = self.x if given is None else given[0] if isinstance(given, list) else given
            return x * 1 + x.stride(0) * 100

    holder, base = Holder(), torch.arange(40.0)
    call = cached(holder.forward, tmp_path, dynamic=dynamic)
    for strides in ((4, 1), (7, 1), (9, 2), (4, 1), (7, 3)):
        x = base.as_strided((1, 4), strides, 2)
        holder.x = x if held == "buffer" else None
        args = {"argument": (x,), "in a list": ([x],), "buffer": ()}[held]
        torch.testing.assert_close(call(*args), holder(*args))
    assert len(call.files) > 1


def test_offsets_are_not_taken_for_granted(tmp_path: Path) -> None:
    def of_place(x: Tensor) -> Tensor:
        return x * 1 + x.storage_offset() * 10

    call = cached(of_place, tmp_path, strict=False)
    base = torch.arange(12.0)
    for x in (base[:4], base[4:8], base[2:6]):
        torch.testing.assert_close(call(x), of_place(x))


def plus(x: Tensor, by: int = 1, *, times: int = 1) -> Tensor:
    return (x + by) * times


def uses_plus(x: Tensor) -> Tensor:
    return plus(x) * 2


def minus(x: Tensor, by: int = 1, *, times: int = 1) -> Tensor:
    return (x - by) * times


@pytest.mark.parametrize(
    "attribute, value", [("__code__", minus.__code__), ("__defaults__", (5,)), ("__kwdefaults__", {"times": 7})]
)
def test_a_function_that_is_changed_in_place(
    attribute: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = cached(uses_plus, tmp_path)
    x = torch.ones(3)
    torch.testing.assert_close(call(x), torch.full((3,), 4.0))
    monkeypatch.setattr(plus, attribute, value)
    torch.testing.assert_close(call(x), uses_plus(x))
    monkeypatch.undo()
    torch.testing.assert_close(call(x), torch.full((3,), 4.0))


class Steps:
    def apply(self, x: Tensor) -> Tensor:
        return x + 1


class MoreSteps(Steps):
    pass


@pytest.mark.parametrize("as_argument", [True, False])
def test_a_class_that_is_changed(as_argument: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = MoreSteps()

    def of_argument(x: Tensor, steps: Any) -> Tensor:
        return steps.apply(x) * 2 if as_argument else held.apply(x) * 2

    call = cached(of_argument, tmp_path)
    x = torch.ones(3)
    torch.testing.assert_close(call(x, MoreSteps()), torch.full((3,), 4.0))
    monkeypatch.setattr(MoreSteps, "apply", lambda self, x: x - 1, raising=False)
    torch.testing.assert_close(call(x, MoreSteps()), torch.full((3,), 0.0))
    monkeypatch.undo()
    torch.testing.assert_close(call(x, MoreSteps()), torch.full((3,), 4.0))
    monkeypatch.setattr(Steps.apply, "__code__", (lambda self, x: x * 8).__code__)
    torch.testing.assert_close(call(x, MoreSteps()), torch.full((3,), 16.0))


def made(factor: int) -> type:
    class Made:
        def apply(self, x: Tensor) -> Tensor:
            return x * factor

    return Made


def made_of(body: Callable[..., Tensor]) -> type:
    return types.new_class("Same", (), {}, lambda namespace: namespace.update(apply=body))


@pytest.mark.parametrize(
    "classes",
    [(made(2), made(3)), (made_of(lambda self, x: x * 2), made_of(lambda self, x: x * 3))],
    ids=["closure", "body"],
)
def test_classes_of_one_name(classes: tuple[type, type], tmp_path: Path) -> None:
    def of_argument(x: Tensor, steps: Any) -> Tensor:
        return steps.apply(x)

    call = cached(of_argument, tmp_path)
    for class_ in (*classes, *classes):
        torch.testing.assert_close(call(torch.ones(3), class_()), of_argument(torch.ones(3), class_()))


def test_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_environment(x: Tensor) -> Tensor:
        times = int(os.environ.get("AIRGRAPH_TEST_TIMES", "2"))
        return x * times + (1 if "AIRGRAPH_TEST_ADDS" in os.environ else 0) + len(os.getenv("AIRGRAPH_TEST_TEXT", ""))

    call = cached(by_environment, tmp_path)
    x = torch.ones(3)
    for name, value in (("TIMES", "2"), ("TIMES", "5"), ("ADDS", ""), ("TEXT", "four"), ("TIMES", "2")):
        torch.testing.assert_close(call(x), by_environment(x))
        monkeypatch.setenv(f"AIRGRAPH_TEST_{name}", value)
        torch.testing.assert_close(call(x), by_environment(x))
    monkeypatch.undo()
    torch.testing.assert_close(call(x), by_environment(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * (3 if "AIRGRAPH_TEST_A" in os.environ.keys() else 2),  # noqa: SIM118
        lambda x: x * int(os.environ.setdefault("AIRGRAPH_TEST_A", "4")),
        lambda x: x * int(os.environ[f"AIRGRAPH_TEST_{'A' if x.dim() else 'B'}"]),
    ],
)
def test_variables_of_the_environment(function: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = cached(function, tmp_path)
    for value in ("3", "5", "", "3"):
        if value:
            monkeypatch.setenv("AIRGRAPH_TEST_A", value)
        elif "A" in function.__code__.co_names:
            monkeypatch.delenv("AIRGRAPH_TEST_A")
        torch.testing.assert_close(call(torch.ones(2)), function(torch.ones(2)))


class Named(NamedTuple):
    value: Tensor


class MoreNamed(Named):
    pass


def test_an_attribute_of_a_returned_named_tuple(tmp_path: Path) -> None:
    def named(x: Tensor) -> MoreNamed:
        result = MoreNamed(x * 2)
        result.note = "kept"  # type: ignore[attr-defined]
        return result

    call = cached(named, tmp_path, strict=False)
    for _ in range(2):
        result = call(torch.ones(2))
        torch.testing.assert_close(result.value, torch.full((2,), 2.0))
        assert result.note == "kept"


class Counting:
    count = 0

    def apply(self, x: Tensor) -> Tensor:
        return x + 1


def test_a_counter_of_a_class_is_no_change(tmp_path: Path) -> None:
    def of_argument(x: Tensor, steps: Any) -> Tensor:
        return steps.apply(x)

    call = cached(of_argument, tmp_path)
    for count in range(4):
        Counting.count = count
        torch.testing.assert_close(call(torch.ones(3), Counting()), torch.full((3,), 2.0))
    assert len(call.files) == 1


def test_a_function_that_is_given_and_changed_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def applied(x: Tensor, function: Any) -> Tensor:
        return function(x)

    call = cached(applied, tmp_path)
    torch.testing.assert_close(call(torch.ones(3), plus), torch.full((3,), 2.0))
    monkeypatch.setattr(plus, "__code__", minus.__code__)
    torch.testing.assert_close(call(torch.ones(3), plus), torch.full((3,), 0.0))


class Environ:
    def __init__(self) -> None:
        self._data = {"times": 2}


class Holder:
    def __init__(self) -> None:
        self.environ = Environ()


def test_an_attribute_that_is_only_called_as_the_environment_is(tmp_path: Path) -> None:
    def scaled(x: Tensor, holder: Any) -> Tensor:
        return x * holder.environ._data["times"]

    holder = Holder()
    call = cached(scaled, tmp_path, dynamic=False)
    for times in (2, 5, 2):
        holder.environ._data["times"] = times
        torch.testing.assert_close(call(torch.ones(3), holder), torch.full((3,), float(times)))


def test_keys_that_are_equal_and_not_the_same(tmp_path: Path) -> None:
    table: dict[Any, int] = {1: 2}

    def by_key(x: Tensor) -> Tensor:
        for key in table:
            x = x * (5 if key is True else 7)
        return x

    call, x = cached(by_key, tmp_path, strict=False), torch.ones(2)
    for key in (1, True, 1, 1.0, True):
        table.clear()
        table[key] = 2
        torch.testing.assert_close(call(x), by_key(x))
