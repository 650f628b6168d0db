"""What changes in the model, its classes and closures is seen at the next call."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cached_functions import Mlp, cached, equal_to_eager
from torch import Tensor, nn


def test_what_changes_in_the_model_is_seen_at_the_next_call(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path)
    x = torch.randn(4, 8)

    def check() -> None:
        torch.testing.assert_close(call(x), model(x).detach())

    check()
    changes: list[Callable[[], Any]] = [
        lambda: setattr(model.inner, "weight", nn.Parameter(torch.randn(8, 8))),
        lambda: model.inner.weight.data.mul_(2),
        lambda: setattr(model.inner.weight, "data", torch.randn(8, 8)),
        lambda: model.load_state_dict(Mlp().state_dict(), assign=True),
        lambda: setattr(model, "factor", 3.0),
        lambda: setattr(model, "layers", nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])),
        lambda: model.layers.append(nn.Linear(8, 8)),
        lambda: setattr(model, "inner", nn.Linear(8, 8, bias=False)),
        lambda: model.eval(),
        lambda: setattr(model.inner, "forward", lambda x: x * 5),
        lambda: delattr(model.inner, "forward"),
        lambda: setattr(model, "act", torch.tanh),
        lambda: model.double().float(),
    ]
    for change in changes:
        change()
        check()
        check()


def test_a_hook_that_is_added_later_runs(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path)
    x = torch.randn(4, 8)
    before = call(x)
    handle = model.inner.register_forward_hook(lambda module, args, out: out + 1)
    assert not torch.equal(call(x), before)
    torch.testing.assert_close(call(x), model(x).detach())
    handle.remove()
    assert torch.equal(call(x), before)


def test_tied_weights_that_come_apart(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.b = nn.Linear(4, 4)
            self.b.weight = self.a.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x))

    model = Tied()
    call = cached(model.forward, tmp_path)
    x = torch.randn(2, 4)
    torch.testing.assert_close(call(x), model(x).detach())
    model.b.weight = nn.Parameter(torch.randn(4, 4))
    torch.testing.assert_close(call(x), model(x).detach())


def test_closures_follow_what_they_close_over(tmp_path: Path) -> None:
    weight, factor = torch.randn(3), 2.0

    def scale(x: Tensor) -> Tensor:
        return x * weight * factor

    call = cached(scale, tmp_path)
    x = torch.randn(3)
    torch.testing.assert_close(call(x), scale(x))
    weight, factor = torch.randn(3), 4.0
    torch.testing.assert_close(call(x), scale(x))


def test_many_objects_of_one_class_share_a_folder(tmp_path: Path) -> None:
    for factor in range(12):
        model = Mlp()
        model.factor = float(factor)
        x = torch.randn(4, 8)
        torch.testing.assert_close(cached(model.forward, tmp_path)(x), model(x).detach())
    assert len(list(tmp_path.rglob("*.airgraph"))) == 12


class Scaled:
    factor = 2.0

    def step(self, x: Tensor) -> Tensor:
        return x * self.factor


def test_attributes_of_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = cached(Scaled().step, tmp_path)
    x = torch.ones(2)
    for factor in (2.0, 3.0, 2.0):
        monkeypatch.setattr(Scaled, "factor", factor)
        equal_to_eager(call, (x,))


def test_functions_of_one_name(tmp_path: Path) -> None:
    def make(number: float) -> Callable[[Tensor], Tensor]:
        return lambda x: x * number

    def loud(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(x: Tensor) -> Any:
            return function(x) + 100

        return wrapped

    class Acting(nn.Module):
        act: Any

        def forward(self, x: Tensor) -> Tensor:
            return self.act(x)

    model = Acting()
    model.act = make(2.0)
    call = cached(model.forward, tmp_path)
    x = torch.ones(2)
    for act in (make(2.0), make(3.0), loud(make(2.0)), make(2.0)):
        model.act = act
        equal_to_eager(call, (x,))
        equal_to_eager(cached(model.forward, tmp_path), (x,))

    def apply(x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        return function(x)

    call = cached(apply, tmp_path)
    for _ in range(12):
        # A new function object for each call, of the same code.
        equal_to_eager(call, (x, lambda x: x * 5))
    assert len(call.files) == 1


def test_tensors_of_the_model_in_another_form_at_the_same_address(tmp_path: Path) -> None:
    class Held(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 4), requires_grad=False)
            self.full = torch.zeros(8, 4)
            self.cache = self.full[:4]

        def forward(self, x: Tensor) -> Tensor:
            self.cache.add_(1)
            return x @ self.weight + self.cache.sum() * self.cache.shape[0]

    model = Held()
    call = cached(model.forward, tmp_path)
    x = torch.randn(2, 4)

    def check() -> None:
        before = model.full.clone()
        ours = call(x)
        model.full.copy_(before)
        torch.testing.assert_close(ours, model(x))

    check()
    model.weight.data = model.weight.data.t()
    check()
    for rows in (6, 4, 8):
        model.cache.data = model.full[:rows]
        check()


def test_a_tensor_of_the_model_that_becomes_none(tmp_path: Path) -> None:
    model = nn.Linear(4, 4).requires_grad_(False)

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)

    call = cached(Around().forward, tmp_path)
    x = torch.randn(2, 4)
    equal_to_eager(call, (x,))
    bias, model.bias = model.bias, None
    equal_to_eager(call, (x,))
    model.bias = bias
    equal_to_eager(call, (x,))


def test_what_a_module_gets_later(tmp_path: Path) -> None:
    class Adapted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return self.adapter(x) if hasattr(self, "adapter") else x * 2

    model = Adapted()
    call = cached(model.forward, tmp_path)
    x = torch.randn(2, 4)
    equal_to_eager(call, (x,))
    model.adapter = nn.Linear(4, 4).requires_grad_(False)
    equal_to_eager(call, (x,))
    del model.adapter
    equal_to_eager(call, (x,))


class Plain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class Other(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 3


def test_an_object_that_changes_its_class(tmp_path: Path) -> None:
    model = nn.Sequential(Plain())

    def run(x: Tensor) -> Tensor:
        return model(x)

    call = cached(run, tmp_path)
    x = torch.ones(2)
    for class_ in (Plain, Other, Plain):
        model[0].__class__ = class_
        equal_to_eager(call, (x,))


def test_the_order_of_an_ordered_dict(tmp_path: Path) -> None:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = OrderedDict(double=2.0, more=3.0)

        def forward(self, x: Tensor) -> Tensor:
            for number in self.steps.values():
                x = x * number + 1
            return x

    model = Steps()
    call = cached(model.forward, tmp_path, strict=False)
    x = torch.ones(2)
    equal_to_eager(call, (x,))
    model.steps.move_to_end("double")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        equal_to_eager(call, (x,))


@pytest.mark.parametrize("moves_first", [False, True])
def test_the_order_of_the_hooks_of_a_module_that_is_passed(tmp_path: Path, moves_first: bool) -> None:
    """It is looked at by what reads a call, not watched."""
    model = nn.Sequential(nn.ReLU())
    first = model[0].register_forward_hook(lambda module, args, out: out * 2)
    model[0].register_forward_hook(lambda module, args, out: out + 1)

    def run(model: nn.Module, x: Tensor) -> Tensor:
        return model(x)

    call = cached(run, tmp_path)
    x = torch.ones(2)
    for moves in (moves_first, not moves_first):
        if moves:
            model[0]._forward_hooks.move_to_end(first.id)
        for _ in range(3):
            equal_to_eager(call, (model, x))
    assert call.counts().traces == (1 if moves_first else 2)


def test_what_moved_hooks_close_over_stays_theirs(tmp_path: Path) -> None:
    factor, more = torch.full((2,), 3.0), torch.ones(2)
    model = nn.Sequential(nn.ReLU())
    first = model[0].register_forward_hook(lambda module, args, out: out * factor)
    model[0].register_forward_hook(lambda module, args, out: out + more)
    call = cached(model.forward, tmp_path)
    x = torch.ones(2)
    equal_to_eager(call, (x,))
    model[0]._forward_hooks.move_to_end(first.id)
    equal_to_eager(call, (x,))
    more.add_(1)
    equal_to_eager(call, (x,))


@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
def test_the_order_of_a_modules_hooks(tmp_path: Path, register: str) -> None:
    model = nn.Sequential(nn.ReLU())

    def double(module: nn.Module, *values: Any) -> Tensor:
        return (values[-1][0] if isinstance(values[-1], tuple) else values[-1]) * 2

    def add_one(module: nn.Module, *values: Any) -> Tensor:
        return (values[-1][0] if isinstance(values[-1], tuple) else values[-1]) + 1

    first = getattr(model[0], register)(double)
    getattr(model[0], register)(add_one)
    call = cached(model.forward, tmp_path)
    x = torch.ones(2)
    equal_to_eager(call, (x,))
    hooks = model[0]._forward_hooks if register == "register_forward_hook" else model[0]._forward_pre_hooks
    hooks.move_to_end(first.id)
    equal_to_eager(call, (x,))


def test_the_order_of_a_dict(tmp_path: Path) -> None:
    steps = {"double": 2.0, "more": 3.0}

    def run(x: Tensor) -> Tensor:
        for number in steps.values():
            x = x * number + 1
        return x

    call = cached(run, tmp_path)
    x = torch.ones(2)
    equal_to_eager(call, (x,))
    steps["double"] = steps.pop("double")
    equal_to_eager(call, (x,))


def test_the_order_of_a_modules_children(tmp_path: Path) -> None:
    model = nn.Sequential(nn.ReLU(), nn.Linear(2, 2))
    call = cached(model.forward, tmp_path)
    x = torch.ones(2)
    equal_to_eager(call, (x,))
    model._modules["0"] = model._modules.pop("0")
    equal_to_eager(call, (x,))


def _twice(self: Any, x: Tensor) -> Tensor:
    return x * 2


def _thrice(self: Any, x: Tensor) -> Tensor:
    return x * 3


def test_a_forward_that_is_replaced_in_its_class(tmp_path: Path) -> None:
    def make(forward: Callable[..., Any]) -> nn.Module:
        class Act(nn.Module):
            pass

        Act.forward = forward
        return Act()

    model = nn.Sequential(make(_twice))

    def run(x: Tensor) -> Tensor:
        return model(x)

    call = cached(run, tmp_path)
    x = torch.ones(2)
    equal_to_eager(call, (x,))
    # Another class of the same name.
    model[0] = make(_thrice)
    equal_to_eager(call, (x,))
    equal_to_eager(cached(run, tmp_path), (x,))
    type(model[0]).forward = _twice
    equal_to_eager(call, (x,))


def test_attributes_that_are_only_asked_for(tmp_path: Path) -> None:
    class Asking(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2 if hasattr(self, "fast") else x * 3

    model = Asking()
    call = cached(model.forward, tmp_path)
    x = torch.ones(2)
    equal_to_eager(call, (x,))
    model.fast = True
    equal_to_eager(call, (x,))
    del model.fast
    equal_to_eager(call, (x,))
    Asking.fast = True
    equal_to_eager(call, (x,))
    del Asking.fast
    equal_to_eager(call, (x,))


def test_a_property_of_a_metaclass(tmp_path: Path) -> None:
    class Meta(type):
        @property
        def width(cls) -> int:
            return 2

    class Config(metaclass=Meta):
        pass

    def scale(x: Tensor) -> Tensor:
        return x * Config.width

    call, x = cached(scale, tmp_path), torch.ones(3)
    torch.testing.assert_close(call(x), scale(x))
    Meta.width = property(lambda cls: 3)  # type: ignore[assignment,method-assign]
    torch.testing.assert_close(call(x), scale(x))


def test_attributes_that_are_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor, self.inner = 2.0, nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) * self.factor * FACTOR.factor

    model, x = Scaled(), torch.ones(3)
    call = cached(model.forward, tmp_path)
    equal_to_eager(call, (x,))
    model.__dict__ = {**model.__dict__, "factor": 3.0}
    equal_to_eager(call, (x,))
    FACTOR.__dict__ = {"factor": 5.0}
    equal_to_eager(call, (x,))
    FACTOR.__dict__ = {"factor": 1.0}
    equal_to_eager(call, (x,), (x,))


class Factor:
    def __init__(self) -> None:
        self.factor = 1.0


FACTOR = Factor()
