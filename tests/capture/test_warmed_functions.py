"""A warm-up captures through whatever leads to a compiled function, and says so where nothing does."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import airgraph
from airgraph.errors import OptionError


def _double(x: Tensor) -> Tensor:
    return x * 2


_compiled_double = torch.compile(_double, backend="airgraph")
_held = types.SimpleNamespace(compiled=_compiled_double)


def _in_a_list(x: Tensor) -> list[Tensor]:
    return [_compiled_double(each) for each in (x,)]


class _Engine:
    """Not callable itself, and compiles at its first step."""

    def __init__(self) -> None:
        self.model: Callable[[Tensor], Tensor] | None = None

    def step(self, x: Tensor) -> Tensor:
        self.model = self.model or torch.compile(_double, backend="airgraph")
        return self.model(x)


class _Decorated(nn.Module):
    @torch.compile(backend="airgraph")
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


_LEADING: dict[str, Callable[[], Any]] = {
    "itself": lambda: _compiled_double,
    "method": lambda: _Engine().step,
    "closure": lambda: (lambda engine: lambda x: engine.step(x))(_Engine()),
    "forward": _Decorated,
    "module of such": lambda: nn.Sequential(_Decorated()),
    "comprehension": lambda: _in_a_list,
    "name of a module": lambda: lambda x: _held.compiled(x),
}
_OTHERS: dict[str, Callable[[], Any]] = {
    "function": lambda: _double,
    "operator": lambda: torch.ops.aten.relu.default,
    "another backend": lambda: torch.compile(_double, backend="eager"),
    "none": lambda: None,
    "number": lambda: 3,
}


@pytest.mark.parametrize("make", _LEADING.values(), ids=_LEADING)
def test_what_leads_to_a_compiled_function_is_warmed_up(make: Callable[[], Any]) -> None:
    function = make()
    with torch.no_grad():
        made = airgraph.warmup(function, [torch.ones(2), torch.ones(3)], progress=False)
        assert made.captured == 2
        # There is nothing left to capture, and that is right.
        assert airgraph.warmup(function, [torch.ones(2)], progress=False).captured == 0


@pytest.mark.parametrize("make", _OTHERS.values(), ids=_OTHERS)
def test_what_leads_to_none_is_an_error(make: Callable[[], Any]) -> None:
    with pytest.raises(OptionError, match="^warmup: compiled: expected a function or module from torch.compile"):
        airgraph.warmup(make(), [torch.ones(2), torch.ones(3)], progress=False)


def test_it_is_executed_once_at_most() -> None:
    ran = []
    with pytest.raises(OptionError, match="It was executed once"):
        airgraph.warmup(ran.append, [torch.ones(2), torch.ones(3)], progress=False)
    assert len(ran) == 1


def test_a_cached_function_is_warmed_up(tmp_path: Path) -> None:
    call = airgraph.inference.cache_compile(_double, cache_dir=tmp_path)
    assert airgraph.warmup(call, [torch.ones(2)], progress=False).captured == 1


def test_while_dynamo_is_switched_off_nothing_is_captured() -> None:
    with torch._dynamo.config.patch(disable=True):
        assert airgraph.warmup(_compiled_double, [torch.ones(2)], progress=False).captured == 0


def test_calls_that_can_only_be_counted_and_indexed() -> None:
    class Calls:
        def __len__(self) -> int:
            return 1

        def __getitem__(self, i: int) -> Tensor:
            return [torch.ones(2)][i]

    with torch.no_grad():
        assert airgraph.warmup(_compiled_double, Calls(), progress=False).captured == 1  # type: ignore[arg-type]
