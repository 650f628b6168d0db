"""Settings of the process that change after a capture act as they do in eager; those that stay cost no capture."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ambient import attention, autocast, inputs, products, same, with_custom_operator
from doors import both_doors, through
from reports import counters
from torch import Tensor

import airgraph
from airgraph.cpu import CPUGraph, graph
from airgraph.errors import ReplayError

pytestmark = pytest.mark.usefixtures("settings_as_before")


# Determinism.


def uninitialised(x: Tensor) -> tuple[Tensor, ...]:
    return torch.empty(4) + x.sum() * 0, torch.empty_like(x), x.new_empty(3, dtype=torch.int64)


@torch.no_grad()
@both_doors
def test_deterministic_algorithms_fill_memory_also_after_a_capture(door: str, tmp_path: Path) -> None:
    call = through(door, uninitialised, tmp_path)
    x = torch.ones(5)
    call(x)
    for on in (True, False, True, True):
        torch.use_deterministic_algorithms(on)
        for _ in range(2):
            dirty = [torch.full((5,), 3.0) for _ in range(20)]
            del dirty
            out, expected = call(x), uninitialised(x)
            if on:
                assert all(e.isnan().all() for e in expected[:2]), "eager fills"
                assert out[0].isnan().all() and out[1].isnan().all()
                assert torch.equal(out[2], expected[2])
    torch.utils.deterministic.fill_uninitialized_memory = False
    held = [call(x) for _ in range(3)]
    assert len(held) == 3
    torch.utils.deterministic.fill_uninitialized_memory = True
    assert call(x)[1].isnan().all()


def accumulates(x: Tensor, index: Tensor) -> Tensor:
    return torch.zeros(4).index_put((index,), x, accumulate=True) + torch.zeros(4).index_add(0, index, x)


def has_no_deterministic_kernel(x: Tensor) -> Tensor:
    return refuses(x) * 2


@torch.library.custom_op("airgraph_ambient::refuses", mutates_args=())
def refuses(x: Tensor) -> Tensor:
    """As kernels without a deterministic form do."""
    if torch.are_deterministic_algorithms_enabled():
        raise RuntimeError("airgraph_ambient::refuses does not have a deterministic implementation")
    return x + 1


refuses.register_fake(torch.empty_like)


@torch.no_grad()
@both_doors
def test_deterministic_kernels_are_taken_also_after_a_capture(door: str, tmp_path: Path) -> None:
    call = through(door, accumulates, tmp_path)
    index = torch.randint(4, (2000,))
    for on in (False, True, False, True):
        torch.use_deterministic_algorithms(on)
        x = torch.randn(2000)
        torch.testing.assert_close(call(x, index), accumulates(x, index))


@torch.no_grad()
@both_doors
def test_what_has_no_deterministic_form_raises_also_after_a_capture(door: str, tmp_path: Path) -> None:
    call = through(door, has_no_deterministic_kernel, tmp_path)
    x = torch.ones(3)
    for _ in range(2):
        torch.use_deterministic_algorithms(False)
        assert torch.equal(call(x), has_no_deterministic_kernel(x))
        torch.use_deterministic_algorithms(True)
        with pytest.raises(Exception, match="does not have a deterministic implementation"):
            call(x)


# Precision and other settings of the process.


@torch.no_grad()
@both_doors
@pytest.mark.parametrize("program", [products, attention, with_custom_operator])
def test_the_precision_of_products_set_after_a_capture(door: str, program: Callable[..., Any], tmp_path: Path) -> None:
    call = through(door, program, tmp_path)
    x, y = torch.randn(64, 256), torch.randn(64, 256)
    for precision in ("highest", "medium", "high", "highest", "medium"):
        torch.set_float32_matmul_precision(precision)
        for _ in range(2):
            ours, theirs = call(x, y), program(x, y)
            for a, b in zip(*((r if isinstance(r, tuple) else (r,)) for r in (ours, theirs)), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-6, atol=2e-5)


@torch.no_grad()
@pytest.mark.parametrize("first", ["highest", "medium"])
def test_the_precision_of_products_in_a_graph_by_hand(first: str) -> None:
    """Either the capture's or the replay's, but one of them: not the one in one kernel, the other in the next."""
    x, y = torch.randn(64, 256), torch.randn(64, 256)
    expected = {}
    for precision in ("highest", "medium"):
        torch.set_float32_matmul_precision(precision)
        expected[precision] = products(x, y)
    torch.set_float32_matmul_precision(first)
    g = CPUGraph()
    with airgraph.cpu.graph(g):
        out = products(x, y)
    for precision in ("highest", "medium", "highest"):
        torch.set_float32_matmul_precision(precision)
        g.replay()
        assert any(
            all(torch.allclose(a, b, rtol=1e-6, atol=2e-5) for a, b in zip(out, each, strict=True))
            for each in (expected[first], expected[precision])
        )


def denormal(x: Tensor) -> tuple[Tensor, ...]:
    return x * 0.5, (x * 2).sum(), x.exp().log() * 1e-38


@torch.no_grad()
@both_doors
def test_flushing_of_denormals_set_after_a_capture(door: str, tmp_path: Path) -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot")
    torch.set_flush_denormal(False)
    call = through(door, denormal, tmp_path)
    x = torch.full((40,), 1e-40)
    for on in (False, True, False):
        torch.set_flush_denormal(on)
        _same_bits(call(x), denormal(x))


def _same_bits(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...]) -> None:
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)), (ours, theirs)


@torch.no_grad()
@both_doors
def test_the_number_of_threads_set_after_a_capture(door: str, tmp_path: Path) -> None:
    def sums(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x.sum(), (x @ y).relu(), x.softmax(-1)

    call = through(door, sums, tmp_path)
    x, y = torch.randn(300, 300), torch.randn(300, 300)
    for threads in (2, 1, 3, 1, 2):
        torch.set_num_threads(threads)
        for a, b in zip(call(x, y), sums(x, y), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-4)


def makes_new(x: Tensor) -> tuple[Tensor, ...]:
    return torch.ones(3) * x.to(torch.get_default_dtype()), torch.arange(3) * 1.5, torch.full((2,), 1.0)


@torch.no_grad()
@both_doors
def test_the_default_dtype_set_after_a_capture(door: str, tmp_path: Path) -> None:
    call = through(door, makes_new, tmp_path)
    x = torch.ones(3)
    for dtype in (torch.float32, torch.float64, torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        for ours, theirs in zip(call(x), makes_new(x), strict=True):
            assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)


@torch.no_grad()
@both_doors
def test_oneDNN_switched_off_after_a_capture(door: str, tmp_path: Path) -> None:
    call = through(door, products, tmp_path)
    x, y = inputs()
    for enabled in (True, False, True):
        with torch.backends.mkldnn.flags(enabled=enabled):
            same(call(x, y), products(x, y))


@torch.no_grad()
@both_doors
def test_attention_kernels_switched_after_a_capture(door: str, tmp_path: Path) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    call = through(door, attention, tmp_path)
    for backends in ([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], [SDPBackend.MATH], [SDPBackend.FLASH_ATTENTION]):
        x, y = inputs()
        with sdpa_kernel(backends):
            same(call(x, y), attention(x, y))
    same(call(x, y), attention(x, y))


def asks(x: Tensor) -> tuple[Tensor, ...]:
    """Python decides by a setting, so that another one is another program."""
    return (
        x * 2 if torch.are_deterministic_algorithms_enabled() else x * 3,
        x * 2 if torch.get_default_dtype() == torch.float32 else x * 3,
        x * 2 if torch.is_grad_enabled() else x * 3,
        x * 2 if torch.is_inference_mode_enabled() else x * 3,
        x * torch.get_num_threads(),
    )


def asks_for_precision(x: Tensor) -> Tensor:
    return x * 2 if torch.get_float32_matmul_precision() == "highest" else x * 3


def asks_for_autocast(x: Tensor) -> Tensor:
    return x * 2 if torch.is_autocast_enabled("cpu") else x * 3


@both_doors
@pytest.mark.parametrize("program", [asks, asks_for_precision, asks_for_autocast])
@pytest.mark.sampled
def test_programs_that_ask_for_settings(door: str, program: Callable[..., Any], tmp_path: Path) -> None:
    call = through(door, program, tmp_path)
    changes: list[Callable[[], object]] = [
        lambda: None,
        lambda: torch.use_deterministic_algorithms(True),
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: torch.set_num_threads(3),
        lambda: torch.set_default_dtype(torch.float64),
        lambda: torch.use_deterministic_algorithms(False),
        lambda: torch.set_float32_matmul_precision("highest"),
        lambda: torch.set_default_dtype(torch.float32),
        lambda: torch.set_num_threads(1),
    ]
    with torch.no_grad():
        for change in changes:
            change()
            x = torch.ones(3, dtype=torch.float32)
            same(call(x), program(x))
            with autocast():
                same(call(x), program(x))
        with torch.inference_mode():
            same(call(x), program(x))
        same(call(x), program(x))


@torch.no_grad()
def test_settings_by_turns_do_not_end_in_eager_calls() -> None:
    """Each has its capture, or the one capture is made anew; the limit counts what is kept."""
    call = torch.compile(products, backend="airgraph", dynamic=False, options={"capture_limit": 4})
    x, y = inputs()
    for i in range(20):
        torch.use_deterministic_algorithms(bool(i % 2))
        same(call(x, y), products(x, y))
    assert counters()["eager_calls"] == 0


@torch.no_grad()
def test_settings_that_stay_cost_no_capture() -> None:
    """Set again to what they were, they change nothing."""
    call = torch.compile(products, backend="airgraph", dynamic=False)
    x, y = inputs()
    for _ in range(10):
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision("highest")
        torch.set_default_dtype(torch.float32)
        same(call(x, y), products(x, y))
    assert counters()["captures"] == 1 and counters()["eager_calls"] == 0


@torch.no_grad()
def test_integers_by_hand_under_another_default_dtype() -> None:
    numbers, weight = torch.arange(5), torch.ones(5)
    roots, plain = CPUGraph(), CPUGraph()
    with graph(roots):
        y = torch.sqrt(numbers)
    with graph(plain):
        z = weight * 2
    torch.set_default_dtype(torch.bfloat16)
    plain.replay()
    with pytest.raises(ReplayError, match=r"default dtype torch\.float32, now torch\.bfloat16"):
        roots.replay()
    torch.set_default_dtype(torch.float32)
    roots.replay()
    assert torch.equal(y, torch.sqrt(numbers)) and torch.equal(z, weight * 2)
