"""What replaces the code or the defaults of the cached function itself is seen at the next call."""

from __future__ import annotations

import abc
import functools
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from cached_functions import cached
from torch import Tensor, nn


def scaled(x: Tensor, by: float = 2.0, *, plus: float = 1.0) -> Tensor:
    return x * by + plus


def tripled(x: Tensor) -> Tensor:
    return x * 3


def quadrupled(x: Tensor, by: float = 4.0) -> Tensor:
    return x * by


def test_the_body_of_the_function_itself_is_replaced(tmp_path: Path) -> None:
    """As IPython's autoreload does."""
    function = types.FunctionType(scaled.__code__, globals(), "scaled", scaled.__defaults__)
    function.__kwdefaults__ = {"plus": 1.0}
    call = cached(function, tmp_path)
    x = torch.ones(3)

    def check() -> None:
        for _ in range(2):
            torch.testing.assert_close(call(x), function(x))

    check()
    function.__defaults__ = (7.0,)
    check()
    function.__kwdefaults__ = {"plus": 50.0}
    check()
    function.__kwdefaults__["plus"] = 60.0
    check()
    function.__code__ = tripled.__code__
    check()
    function.__code__, function.__defaults__ = quadrupled.__code__, (4.0,)
    check()
    torch.testing.assert_close(call(x, 5.0), function(x, 5.0))
    torch.testing.assert_close(call(x, by=6.0), function(x, by=6.0))


def test_the_body_of_the_method_itself_is_replaced(tmp_path: Path) -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    def other(self: Model, x: Tensor) -> Tensor:
        return x * 2 + 100

    model = Model()
    call = cached(model.forward, tmp_path)
    x = torch.ones(3)
    torch.testing.assert_close(call(x), model(x))
    Model.forward.__code__ = other.__code__
    torch.testing.assert_close(call(x), model(x))
    assert call(x)[0] == 102


def _by_what_is_loaded(x: Tensor) -> Tensor:
    return x * 2 if "marker_of_this_test" in sys.modules else x * 3


def test_what_inlined_code_asks_of_sys_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = cached(_by_what_is_loaded, tmp_path)
    x = torch.ones(3)
    assert torch.equal(call(x), x * 3)
    monkeypatch.setitem(sys.modules, "marker_of_this_test", sys)
    assert torch.equal(call(x), x * 2)
    monkeypatch.delitem(sys.modules, "marker_of_this_test")
    assert torch.equal(call(x), x * 3)


def passed_on(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator whose wrapper finds the object of a method among its arguments, as transformers' do."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Decorated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.factor, self.sign, self.settings = 2.0, 1, {"shift": 3}

    @passed_on
    def forward(self, x: Tensor, other: nn.Module | None = None) -> Tensor:
        y = self.linear(x) * self.factor * self.sign + self.settings["shift"]
        return y if other is None else other.linear(y)


@torch.no_grad()
@pytest.mark.parametrize("what", ["weight", "values", "module", "float", "integer", "item", "class"])
def test_the_object_of_a_decorated_method_is_watched(what: str, tmp_path: Path) -> None:
    model, x = Decorated(), torch.randn(2, 4)
    call = cached(model.forward, tmp_path)
    for _ in range(3):
        torch.testing.assert_close(call(x), model(x))
    match what:
        case "weight":
            model.linear.weight = nn.Parameter(torch.rand(4, 4))
        case "values":
            model.linear.weight.add_(1)
        case "module":
            model.linear = nn.Linear(4, 4)
        case "float":
            model.factor = 5.0
        case "integer":
            model.sign = -1
        case "item":
            model.settings["shift"] = 7
        case "class":
            model.linear.__class__ = type("Other", (nn.Linear,), {"forward": lambda self, x: x + self.weight.sum()})
    for _ in range(3):
        torch.testing.assert_close(call(x), model(x))


@torch.no_grad()
def test_of_a_decorated_method_only_its_own_object_is_fixed(tmp_path: Path) -> None:
    model, others, x = Decorated(), [Decorated(), Decorated()], torch.randn(2, 4)
    call, another = cached(model.forward, tmp_path), cached(others[0].forward, tmp_path)
    for _ in range(2):
        for other in (*others, model):
            torch.testing.assert_close(call(x, other), model(x, other))
            torch.testing.assert_close(another(x, other=other), others[0](x, other=other))
            other.linear.weight = nn.Parameter(torch.rand(4, 4))


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.count = nn.Linear(4, 4), 0

    @passed_on
    def compare(self, x: Tensor, other: nn.Module) -> Tensor:
        return self.linear(x) if other is self else other.linear(x) * 2

    @passed_on
    def note(self, x: Tensor, other: nn.Module) -> Tensor:
        self.count = 5
        return self.linear(x) * (other.count + 1)

    def note_plainly(self, x: Tensor, other: nn.Module) -> Tensor:
        self.count = 5
        return self.linear(x) * (other.count + 1)


@torch.no_grad()
@pytest.mark.parametrize("method", ["compare", "note", "note_plainly"])
def test_its_object_given_as_another_argument_is_told_apart(method: str, tmp_path: Path) -> None:
    model, other, x = Pair(), Pair(), torch.randn(2, 4)
    call = cached(getattr(model, method), tmp_path, strict=False)
    for each in (other, model, other, model):
        model.count = other.count = 0
        expected = getattr(model, method)(x, each)
        model.count = other.count = 0
        torch.testing.assert_close(call(x, each), expected)
        assert model.count == (0 if method == "compare" else 5) and other.count == 0


@pytest.mark.parametrize("asks", ["isinstance", "issubclass"])
@pytest.mark.parametrize("by_a_subclass", [False, True])
def test_a_class_that_is_registered_with_an_abstract_one(asks: str, by_a_subclass: bool, tmp_path: Path) -> None:
    """Neither class is changed by that."""

    class Fast(abc.ABC):  # noqa: B024
        pass

    class Faster(Fast):
        pass

    class Layer:
        pass

    layer = Layer()

    def is_instance(x: Tensor) -> Tensor:
        return x * 2 if isinstance(layer, Fast) else x

    def is_subclass(x: Tensor) -> Tensor:
        return x * 2 if issubclass(Layer, Fast) else x

    program = is_instance if asks == "isinstance" else is_subclass
    call = cached(program, tmp_path)
    for _ in range(2):
        assert call(torch.ones(1)).item() == 1
    # Of others, which changes nothing.
    Mapping.register(type("Other", (), {}))
    assert call(torch.ones(1)).item() == 1 and len(call.files) == 1
    (Faster if by_a_subclass else Fast).register(Layer)
    for _ in range(2):
        assert call(torch.ones(1)).item() == 2


def test_what_a_class_has_by_its_metaclass(tmp_path: Path) -> None:
    """Neither a version of the class nor a guard of Dynamo's tells of its changes."""

    class Meta(type):
        width = 2.0

    class Layer(metaclass=Meta):
        pass

    call = cached(lambda x: x * Layer.width, tmp_path)
    for _ in range(2):
        assert call(torch.ones(1)).item() == 2
    Meta.width = 4.0
    for _ in range(2):
        assert call(torch.ones(1)).item() == 4
