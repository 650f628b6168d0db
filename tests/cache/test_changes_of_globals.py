"""What changes in the globals of a module is seen at the next call."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cached_functions import cached, equal_to_eager
from torch import Tensor, nn

ACT: Callable[..., Any] = torch.relu


ENABLED = {"fast"}


def test_globals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def act(x: Tensor) -> Tensor:
        return ACT(x) * (2 if "fast" in ENABLED else 3)

    x = torch.randn(4)
    call = cached(act, tmp_path)
    equal_to_eager(call, (x,))
    monkeypatch.setitem(globals(), "ACT", torch.tanh)
    equal_to_eager(call, (x,))
    monkeypatch.setitem(globals(), "ENABLED", set())
    equal_to_eager(call, (x,))
    # As another process would, that has other values from the start.
    equal_to_eager(cached(act, tmp_path), (x,))
    monkeypatch.undo()
    equal_to_eager(call, (x,))
    equal_to_eager(cached(act, tmp_path), (x,))


__SCALE = 2.0


def test_globals_with_two_underscores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scale(x: Tensor) -> Tensor:
        return x * __SCALE

    call = cached(scale, tmp_path)
    x = torch.ones(2)
    equal_to_eager(call, (x,))
    monkeypatch.setitem(globals(), "__SCALE", 3.0)
    equal_to_eager(call, (x,))


class Registry(OrderedDict[str, type[nn.Module]]):
    """Makes a new module at each look, as transformers' table of activations does."""

    def __getitem__(self, name: str) -> Any:
        return super().__getitem__(name)()


registry = Registry(act=nn.ReLU, other=nn.Tanh)


def by_registry(x: Tensor) -> Tensor:
    act: Tensor = registry["act"](x)
    return act * 2


def test_an_entry_of_a_dict_that_makes_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = cached(by_registry, tmp_path)
    x = torch.randn(4)
    for _ in range(3):
        torch.testing.assert_close(call(x), by_registry(x))
    assert len(call.files) == 1
    monkeypatch.setitem(registry, "act", nn.Sigmoid)
    torch.testing.assert_close(call(x), by_registry(x))


local = threading.local()


def by_thread(x: Tensor) -> Tensor:
    scaled: Tensor = x * local.scale
    return scaled


def test_what_each_thread_has_for_itself(tmp_path: Path) -> None:
    call = cached(by_thread, tmp_path)
    got: list[float] = []

    def work(scale: float) -> None:
        local.scale = scale
        got.extend(call(torch.ones(1)).item() for _ in range(2))

    for scale in (2.0, 5.0, 2.0):
        thread = threading.Thread(target=work, args=(scale,))
        thread.start()
        thread.join()
    assert got == [2.0, 2.0, 5.0, 5.0, 2.0, 2.0]
