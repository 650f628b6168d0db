"""PyTorch's global settings, modes and transforms are told apart; whether gradients are on does not matter."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from cached_functions import Mlp, cached, equal_to_eager
from reports import counters
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


def test_global_settings_are_told_apart(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path)
    x = torch.randn(4, 8)
    plain = call(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert call(x).dtype == model(x).dtype == torch.bfloat16
    assert call(x).dtype == torch.float32
    assert torch.equal(call(x), plain)


@pytest.mark.parametrize("first", ["cpu", "meta"])
def test_the_device_of_a_block_is_told_apart(tmp_path: Path, first: str) -> None:
    def makes(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.new_ones(3), torch.zeros(8)

    x = torch.randn(4)
    # Read from files the second time.
    for _ in range(2):
        call = cached(makes, tmp_path, strict=False)
        for device in (first, "meta", "cpu", "cpu", "meta"):
            with torch.device(device), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for _ in range(8):
                    assert [each.device.type for each in call(x)] == ["cpu", device]


def test_another_block_of_one_device_changes_nothing(tmp_path: Path) -> None:
    model, x = Mlp(), torch.randn(4, 8)
    call = cached(model.forward, tmp_path)
    bindings = []
    for _ in range(8):
        with torch.device("cpu"):
            call(x)
        bindings.append(call._entries[0]._binding)
    # A model of many weights takes milliseconds to read.
    assert all(each is bindings[0] for each in bindings)


def test_a_mode_in_the_place_of_another_is_seen(tmp_path: Path) -> None:
    class Doubling(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            return result * 2 if func is torch.relu else result

    def shifted(x: Tensor) -> Tensor:
        return torch.relu(x) + 1

    x = torch.randn(4)
    call = cached(shifted, tmp_path, strict=False)
    with torch.device("cpu"):
        for _ in range(8):
            assert torch.equal(call(x), shifted(x))
    with Doubling(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.equal(call(x), shifted(x))


def test_defaults_of_dtype_and_device_are_told_apart(tmp_path: Path) -> None:
    def make(x: Tensor) -> Tensor:
        return x + torch.ones(3).sum() * 2.5

    call = cached(make, tmp_path)
    x = torch.ones(3)
    assert call(x).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        torch.testing.assert_close(call(x), make(x))
        assert len(call.files) == 2
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.device("cpu"):
        torch.testing.assert_close(call(x), make(x))
    torch.testing.assert_close(call(x), make(x))
    assert len(call.files) == 3


def test_a_function_mode_of_the_user_s_is_not_bypassed(tmp_path: Path) -> None:
    class Negate(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            return -out if func is torch.Tensor.mul else out

    def double(x: Tensor) -> Tensor:
        return x * 2

    call = cached(double, tmp_path, strict=False)
    x = torch.ones(2)
    assert call(x).tolist() == [2.0, 2.0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Negate():
            expected = double(x).tolist()
            assert call(x).tolist() == expected
    assert call(x).tolist() == [2.0, 2.0]


def test_grad_mode_does_not_matter(tmp_path: Path) -> None:
    model = Mlp()
    call = cached(model.forward, tmp_path)
    x = torch.randn(4, 8)
    for mode in (torch.no_grad, torch.enable_grad, torch.inference_mode, torch.no_grad, torch.enable_grad):
        with mode():
            torch.testing.assert_close(call(x), model(x).detach())
    assert len(call.files) == 1 and counters()["captures"] == 1


def test_results_have_no_gradient(tmp_path: Path) -> None:
    model = Mlp()
    with torch.enable_grad():
        out = cached(model.forward, tmp_path)(torch.randn(4, 8, requires_grad=True))
    assert not out.requires_grad


def test_random_numbers_follow_the_seed(tmp_path: Path) -> None:
    def noisy(x: Tensor) -> Tensor:
        return torch.dropout(x, 0.5, True) + torch.rand_like(x)

    call = cached(noisy, tmp_path)
    x = torch.ones(64)
    for _ in range(2):
        torch.manual_seed(7)
        got = call(x)
        torch.manual_seed(7)
        torch.testing.assert_close(got, noisy(x))


def test_transforms_and_modes_are_not_bypassed(tmp_path: Path) -> None:
    def double(x: Tensor) -> Tensor:
        return x * 2

    call = cached(double, tmp_path, strict=False)
    x = torch.randn(3, 4)
    call(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(torch.vmap(call)(x), x * 2)
    torch.testing.assert_close(call(x), x * 2)


def test_settings_of_other_devices(tmp_path: Path) -> None:
    def by_setting(x: Tensor) -> Tensor:
        return x * 2 if torch.is_autocast_enabled("cuda") else x * 3

    call = cached(by_setting, tmp_path)
    x = torch.ones(2)
    equal_to_eager(call, (x,))
    torch.set_autocast_enabled("cuda", True)
    try:
        equal_to_eager(call, (x,))
    finally:
        torch.set_autocast_enabled("cuda", False)
    equal_to_eager(call, (x,))


@pytest.mark.parametrize(
    "name", ["allow_tf32", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"]
)
def test_precision_of_products_on_cuda(name: str, tmp_path: Path) -> None:
    matmul = torch.backends.cuda.matmul

    def by_precision(x: Tensor) -> Tensor:
        return x * (2 if getattr(matmul, name) else 3)

    before = getattr(matmul, name)
    call = cached(by_precision, tmp_path)
    x = torch.ones(2)
    try:
        for allowed in (before, not before, before):
            setattr(matmul, name, allowed)
            for _ in range(2):
                torch.testing.assert_close(call(x), by_precision(x))
    finally:
        setattr(matmul, name, before)


@pytest.mark.parametrize("kind", ["flash", "mem_efficient", "math", "cudnn"])
def test_kinds_of_attention_that_may_be_chosen(kind: str, tmp_path: Path) -> None:
    """The operator that was traced is one of those; a start with others may not have it."""

    def attends(x: Tensor) -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    call = cached(attends, tmp_path, dynamic=False)
    x = torch.randn(1, 2, 8, 16)
    call(x)
    switch = getattr(torch.backends.cuda, f"enable_{kind}_sdp")
    switch(False)
    try:
        reason = call._entries[0].why_not((x,))
        torch.testing.assert_close(call(x), attends(x))
    finally:
        switch(True)
    assert reason is not None and "attention" in reason
    assert len(call._entries) == 2


def test_a_message_names_the_setting_that_differs(tmp_path: Path) -> None:
    def double(x: Tensor) -> Tensor:
        return x * 2

    x = torch.ones(2)
    call = cached(double, tmp_path)
    call(x)
    with torch.autocast("cpu"):
        reason = call._entries[0].why_not((x,))
    assert reason is not None and "autocast" in reason and "deterministic" not in reason and "default" not in reason


def registered_before(module: nn.Module, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return (given[0] + 3,)


def registered_after(module: nn.Module, given: tuple[torch.Tensor, ...], result: torch.Tensor) -> torch.Tensor:
    return result * 2


@torch.no_grad()
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_hook_of_all_modules_comes_and_goes(when: str, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    call = cached(model.forward, tmp_path)
    x = torch.ones(2, 3)
    for _ in range(3):
        torch.testing.assert_close(call(x), model(x))
    plain, of_all = model(x), nn.modules.module
    if when == "before":
        handle = of_all.register_module_forward_pre_hook(registered_before)
    else:
        handle = of_all.register_module_forward_hook(registered_after)
    try:
        assert not torch.equal(model.forward(x), plain)
        for _ in range(3):
            torch.testing.assert_close(call(x), model.forward(x))
    finally:
        handle.remove()
    traced = len(call.files)
    torch.testing.assert_close(call(x), plain)
    assert len(call.files) == traced
