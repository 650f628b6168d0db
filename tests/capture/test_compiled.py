"""A warm-up calls only what leads to a compiled function: anything else would be executed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import airgraph
from airgraph.capture.compiled import leads_to_compiled
from airgraph.errors import OptionError


def _double(x: Tensor) -> Tensor:
    return x * 2


def _plain(x: Tensor) -> Tensor:
    raise AssertionError("it was executed")


_compiled_double = torch.compile(_double, backend="airgraph")


def _names_one(x: Tensor) -> Tensor:
    return _compiled_double(x) + 1


class Layered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Runner:
    def __init__(self, model: Callable[..., Any]) -> None:
        self.model = model

    def step(self, x: Tensor) -> Any:
        return self.model(x)

    def __call__(self, x: Tensor) -> Any:
        return self.step(x)


class Decorated:
    @torch.compile(backend="airgraph")
    def step(self, x: Tensor) -> Tensor:
        return x * 2


def _compiled_in_place() -> nn.Module:
    model = Layered()
    model.compile(backend="airgraph")
    return model


def _by_layers() -> nn.Module:
    model = Layered()
    for layer in model.layers:
        layer.compile(backend="airgraph")
    return model


def _by_forward() -> nn.Module:
    model: Any = Layered()
    model.forward = torch.compile(model.forward, backend="airgraph")
    return model


_COMPILED: dict[str, Callable[[], Any]] = {
    "function": lambda: _compiled_double,
    "module": lambda: torch.compile(Layered(), backend="airgraph"),
    "module in place": _compiled_in_place,
    "layers of a module": _by_layers,
    "forward of a module": _by_forward,
    "method of a module": lambda: _compiled_in_place().forward,
    "decorated method": lambda: Decorated().step,
    "partial": lambda: functools.partial(_compiled_double),
    "function that names it": lambda: _names_one,
    "closure": lambda: (lambda made: lambda x: made(x))(_compiled_double),
    "decorated once more": lambda: torch.no_grad()(_compiled_double),
    "object that holds it": lambda: Runner(_compiled_double),
    "method of an object": lambda: Runner(_by_layers()).step,
}
_NOT_COMPILED: dict[str, Callable[[], Any]] = {
    "function": lambda: _plain,
    "left alone": lambda: torch.compiler.disable(_plain),
    "module": Layered,
    "operator": lambda: torch.ops.aten.relu.default,
    "class": lambda: Runner,
    "object": lambda: Runner(_plain),
    "builtin": lambda: len,
    "none": lambda: None,
    "number": lambda: 3,
}


@pytest.mark.parametrize("make", _COMPILED.values(), ids=_COMPILED)
def test_what_leads_to_a_compiled_function_is_known(make: Callable[[], Any]) -> None:
    assert leads_to_compiled(make())


@pytest.mark.parametrize("make", _NOT_COMPILED.values(), ids=_NOT_COMPILED)
def test_a_warm_up_does_not_execute_what_is_not_compiled(make: Callable[[], Any]) -> None:
    with pytest.raises(OptionError, match="^warmup: compiled: expected a function or module from torch.compile"):
        airgraph.warmup(make(), [torch.ones(2, 2)], progress=False)


def test_a_cached_function_leads_there(tmp_path: Path) -> None:
    call = airgraph.inference.cache_compile(_double, cache_dir=tmp_path)
    assert leads_to_compiled(call) and leads_to_compiled(Runner(call))


@torch.no_grad()
def test_a_warm_up_through_a_function_around_it_captures() -> None:
    assert airgraph.warmup(_names_one, [torch.ones(2)], progress=False).captured == 1


def test_nothing_is_executed_while_dynamo_is_switched_off() -> None:
    with torch._dynamo.config.patch(disable=True):
        assert airgraph.warmup(_plain, [torch.ones(2)], progress=False) == airgraph.WarmUp(0, 0, 0.0)
