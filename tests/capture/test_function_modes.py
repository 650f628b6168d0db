"""Function modes around a call see nothing of the Python kernels within, as in eager; a default device is one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from doors import both_doors, through
from torch import Tensor
from torch.overrides import TorchFunctionMode

from airgraph.cpu import CPUGraph, graph


@torch.library.custom_op("airgraph_function_modes::adds", mutates_args=())
def adds(x: Tensor) -> Tensor:
    return x + torch.ones(3)


@adds.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class Doubling(TorchFunctionMode):
    """Doubles what `torch.ones` makes."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.ones else result


@contextlib.contextmanager
def default_device() -> Iterator[None]:
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


AROUND: dict[str, Callable[[], Any]] = {
    "mode": Doubling,
    "device": lambda: torch.device("meta"),
    "default_device": default_device,
    "switched_off": lambda: torch._C.DisableTorchFunction(),
}


def program(x: Tensor) -> Tensor:
    return adds(x) * 1.5


@both_doors
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.filterwarnings("ignore:airgraph. a call of .* is not cached", "ignore:airgraph. .* is not cached")
@torch.no_grad()
@pytest.mark.sampled
def test_python_kernels_under_a_function_mode(door: str, around: str, first: bool, tmp_path: Path) -> None:
    call = through(door, program, tmp_path)
    x = torch.arange(3.0)
    if not first:
        assert torch.equal(call(x), program(x))
    for _ in range(3):
        with AROUND[around]():
            expected = program(x)
            made = call(x)
        assert torch.equal(made, expected)
    assert torch.equal(call(x), program(x))


@pytest.mark.parametrize("around", AROUND)
def test_python_kernels_of_a_graph_by_hand(around: str) -> None:
    x, g = torch.arange(3.0), CPUGraph()
    with graph(g):
        y = adds(x)
    with AROUND[around]():
        g.replay()
        # What is around is there again.
        assert torch.ones(1).device.type == ("meta" if "device" in around else "cpu")
    assert torch.equal(y, torch.arange(3.0) + 1)
