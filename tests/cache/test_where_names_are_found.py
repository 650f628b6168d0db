"""What a look-up finds depends on what lies before it on its way, which may come later."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from cached_functions import cached
from torch import Tensor, nn

pytestmark = pytest.mark.usefixtures("no_gradients")


@pytest.fixture
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


class Base:
    factor = 2.0

    def asked_of_super(self, x: Tensor) -> Tensor:
        return x


class Named(NamedTuple):
    number: float


class BaseModule(nn.Module):
    factor = 2
    flag: int | None = None

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor if self.flag is None else x * self.flag


def _global() -> tuple[Callable[..., Any], list[Any], type]:
    class Derived(Base):
        pass

    held = Derived()
    return lambda x: x * held.factor, [], Derived


def _argument() -> tuple[Callable[..., Any], list[Any], type]:
    class Derived(Base):
        pass

    return lambda x, given: x * given.factor, [Derived()], Derived


def _asked_for() -> tuple[Callable[..., Any], list[Any], type]:
    class Derived(Base):
        pass

    return lambda x, given: x * given.factor if hasattr(given, "factor") else x, [Derived()], Derived


def _module() -> tuple[Callable[..., Any], list[Any], type]:
    class Derived(BaseModule):
        pass

    return Derived().forward, [], Derived


def _of_a_module() -> tuple[Callable[..., Any], list[Any], type]:
    class Derived(Base):
        pass

    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = Derived()

        def forward(self, x: Tensor) -> Tensor:
            return x * self.held.factor

    return Holder().forward, [], Derived


def _by_super() -> tuple[Callable[..., Any], list[Any], type]:
    class Between(Base):
        pass

    class Derived(Between):
        def asked_of_super(self, x: Tensor) -> Tensor:
            return x * super().factor

    held = Derived()
    return lambda x: held.asked_of_super(x), [], Between


def _named_tuple() -> tuple[Callable[..., Any], list[Any], type]:
    class WithFactor(Named):
        factor = 2.0

    class Derived(WithFactor):
        pass

    return lambda x, given: x * given.factor, [Derived(1.0)], Derived


def _metaclass() -> tuple[Callable[..., Any], list[Any], type]:
    class Meta(type):
        factor = 2

    class Derived(metaclass=Meta):
        pass

    return lambda x: x * Derived.factor, [], Derived


def _missing() -> tuple[Callable[..., Any], list[Any], type]:
    class Empty:
        pass

    class Derived(Empty):
        pass

    def call(x: Tensor, given: Any) -> Tensor:
        try:
            return x * given.factor
        except AttributeError:
            return x * 2

    return call, [Derived()], Derived


@pytest.mark.parametrize(
    "make",
    [_global, _argument, _asked_for, _module, _of_a_module, _by_super, _named_tuple, _metaclass, _missing],
    ids=lambda make: make.__name__[1:],
)
def test_data_that_a_class_comes_to_have_hides_that_of_its_bases(make: Callable[[], Any], tmp_path: Path) -> None:
    function, given, class_ = make()
    x = torch.ones(3)
    call = cached(function, tmp_path)
    for _ in range(6):
        assert call(x, *given).tolist() == [2] * 3
    class_.factor = 7
    assert function(x, *given).tolist() == call(x, *given).tolist() == [7] * 3
    # Of a start from the files, too.
    assert cached(function, tmp_path)(x, *given).tolist() == [7] * 3
    del class_.factor
    assert call(x, *given).tolist() == [2] * 3


def test_a_counter_of_a_class_is_no_reason_to_trace_anew(tmp_path: Path) -> None:
    class Counted:
        factor, calls = 2, 0

    held = Counted()
    call = cached(lambda x: x * held.factor, tmp_path)
    for number in range(6):
        Counted.calls = number
        call(torch.ones(3))
    assert call.counts().traces == 1


@pytest.mark.parametrize("name", ["inner", "weight"])
def test_an_attribute_hides_what_a_module_has_registered(name: str, tmp_path: Path) -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.ReLU()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) * self.weight

    module, x = Outer(), torch.tensor([-1.0, 0, 2])
    call = cached(module.forward, tmp_path)
    for _ in range(6):
        torch.testing.assert_close(call(x), module(x))
    module.__dict__[name] = nn.Identity() if name == "inner" else torch.full((3,), 9.0)
    expected = module(x)
    assert expected.tolist() != [0, 0, 2]
    torch.testing.assert_close(call(x), expected)
    torch.testing.assert_close(cached(module.forward, tmp_path)(x), expected)
    del module.__dict__[name]
    torch.testing.assert_close(call(x), module(x))


def takes_the_larger(x: Tensor) -> Tensor:
    return x * max(1, 2)


def test_a_global_hides_a_function_of_pythons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = cached(takes_the_larger, tmp_path)
    for _ in range(6):
        assert call(torch.ones(2)).tolist() == [2, 2]
    monkeypatch.setitem(globals(), "max", lambda *_: 50)
    assert takes_the_larger(torch.ones(2)).tolist() == call(torch.ones(2)).tolist() == [50, 50]
    monkeypatch.undo()
    assert call(torch.ones(2)).tolist() == [2, 2]


def times(factor: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def twice(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any) -> Any:
            return function(*args) * 2

        return call

    def thrice(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any) -> Any:
            return function(*args) * 3

        return call

    return twice if factor == 2 else thrice


def one_more(x: Tensor) -> Tensor:
    return x + 1


class WithMethods:
    def one_more(self, x: Tensor) -> Tensor:
        return x + 1

    doubled, tripled = times(2)(one_more), times(3)(one_more)


_OF_ONE_LINE = [lambda x: (x + 1) * 2, lambda x: (x + 1) * 3]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (times(2)(one_more), times(3)(one_more)),
        (WithMethods().doubled, WithMethods().tripled),
        _OF_ONE_LINE,
    ],
    ids=["decorated", "methods", "lambdas"],
)
def test_functions_of_one_source_are_told_apart(
    first: Callable[..., Any], second: Callable[..., Any], tmp_path: Path
) -> None:
    x = torch.ones(2)
    for _ in range(2):
        assert cached(first, tmp_path)(x).tolist() == [4, 4]
        assert cached(second, tmp_path)(x).tolist() == [6, 6]


def test_other_code_of_the_same_source_is_not_served(tmp_path: Path) -> None:
    def function(x: Tensor) -> Tensor:
        return x * 2 + 1

    call = cached(function, tmp_path, strict=False)
    for _ in range(6):
        assert call(torch.ones(2)).tolist() == [3, 3]
    code = function.__code__
    function.__code__ = code.replace(co_consts=tuple(5 if each == 2 else each for each in code.co_consts))
    with pytest.warns(UserWarning, match="does not hold the code of function as it runs"):
        assert call(torch.ones(2)).tolist() == [6, 6]
