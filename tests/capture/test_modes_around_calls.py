"""Modes around a call act as they do in eager, see nothing of a capture, and are left as they were by a replay."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager as Context
from pathlib import Path
from typing import Any

import pytest
import torch
from ambient import autocast, distances, inputs, products
from doors import both_doors, through
from reports import counters
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.overrides import TorchFunctionMode

import airgraph
from airgraph.cpu import CPUGraph

pytestmark = pytest.mark.usefixtures("settings_as_before")


@both_doors
@pytest.mark.parametrize("first", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_gradient_modes_around_the_call(door: str, first: Callable[[], Context], tmp_path: Path) -> None:
    """Results, and whether they are inference tensors and need gradients, are those of eager."""
    call = through(door, products, tmp_path)
    for mode in (first, torch.no_grad, torch.inference_mode, torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode():
            x, y = inputs()
            for ours, theirs in zip(call(x, y), products(x, y), strict=True):
                torch.testing.assert_close(ours, theirs)
                assert ours.is_inference() == theirs.is_inference()
                assert ours.requires_grad == theirs.requires_grad


def advance(cache: Tensor, x: Tensor) -> Tensor:
    cache.add_(x)
    return cache * 2


@both_doors
def test_inference_tensors_and_others_by_turns(door: str, tmp_path: Path) -> None:
    """As inputs and as caches; what one mode made is used in the other."""
    call = through(door, advance, tmp_path)
    made = {}
    with torch.no_grad():
        made["plain"] = torch.zeros(3)
    with torch.inference_mode():
        made["inference"] = torch.zeros(3)
    for mode in (torch.inference_mode, torch.no_grad) * 2:
        for name in ("plain", "inference", "plain"):
            with mode():
                cache = made[name].clone() if mode is torch.inference_mode else made[name]
                before = cache.clone()
                x = torch.ones(3)
                if name == "inference" and mode is torch.no_grad:
                    # Eager writes no inference tensor there; it may be read.
                    torch.testing.assert_close(call(torch.zeros(3), cache), cache * 2)
                    continue
                torch.testing.assert_close(call(cache, x), advance(before, x))


@torch.no_grad()
def test_a_replay_leaves_the_settings_as_they_were() -> None:
    call = torch.compile(distances, backend="airgraph")
    x, y = inputs()
    g = CPUGraph()
    with airgraph.cpu.graph(g):
        distances(x, y)

    def state() -> tuple[Any, ...]:
        return (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            torch.is_autocast_cache_enabled(),
            torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(),
            torch.get_num_threads(),
            torch.get_default_dtype(),
            torch._C._len_torch_dispatch_stack(),
            torch._C._dispatch_tls_local_include_set().raw_repr(),
            torch._C._dispatch_tls_local_exclude_set().raw_repr(),
        )

    for setting in (contextlib.nullcontext, autocast, torch.inference_mode, torch.enable_grad):
        with setting():
            before = state()
            call(x, y)
            g.replay()
            call(x, y)
            assert state() == before


def squares(x: Tensor) -> Tensor:
    return (x @ x).relu()


@pytest.mark.parametrize("door", ["compiled", "cached"])
@pytest.mark.parametrize("mode", [FunctionalTensorMode, lambda: FakeTensorMode(allow_non_fake_inputs=True)])
@pytest.mark.filterwarnings("ignore:airgraph. a call of .* is not cached")
def test_a_first_call_under_a_dispatch_mode_spoils_no_later_one(
    mode: Callable[[], Context[Any]], door: str, tmp_path: Path
) -> None:
    call = through(door, squares, tmp_path, dynamic=True)
    with torch.no_grad():
        for size in (3, 4):
            call(torch.randn(size, size))
        x = torch.randn(5, 5)
        with mode(), contextlib.suppress(RuntimeError):
            call(x)
        before = counters()["eager_calls"]
        for _ in range(3):
            torch.testing.assert_close(call(x), squares(x))
        assert counters()["eager_calls"] == before


class Counting(TorchFunctionMode):
    """Would see what a capture calls."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(torch.overrides.resolve_name(function) or "")
        return function(*args, **(kwargs or {}))


def test_a_function_mode_sees_nothing_of_a_capture() -> None:
    call = torch.compile(squares, backend="airgraph", dynamic=True)
    with torch.no_grad():
        for size in (3, 4):
            call(torch.randn(size, size))
        with Counting() as mode:
            call(torch.ones(6, 6))
            first = len(mode.seen)
            call(torch.ones(6, 6))
        assert len(mode.seen) - first == first
