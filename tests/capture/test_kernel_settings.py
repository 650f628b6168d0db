"""Each setting of torch that kernels are chosen by is a condition of a capture, on whatever device it matters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from reports import report
from torch import Tensor

from airgraph.runtime.engine.loading import engine

_CUDA = torch.backends.cuda


# A function that sets it, a value other than the usual one, and the usual one. By torch._C where torch.testing may have
# locked the flags of torch.backends in this process.
SETTINGS: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    "deterministic": (torch.use_deterministic_algorithms, True, False),
    "fill": (lambda v: setattr(torch.utils.deterministic, "fill_uninitialized_memory", v), False, True),
    "matmul_precision": (torch.set_float32_matmul_precision, "medium", "highest"),
    "default_dtype": (torch.set_default_dtype, torch.float64, torch.float32),
    "onednn": (torch._C._set_mkldnn_enabled, False, True),
    "onednn_deterministic": (torch._C._set_mkldnn_deterministic, True, False),
    "nnpack": (torch.backends.nnpack.set_flags, False, True),
    "cudnn": (torch._C._set_cudnn_enabled, False, True),
    "cudnn_benchmark": (torch._C._set_cudnn_benchmark, True, False),
    "cudnn_deterministic": (torch._C._set_cudnn_deterministic, True, False),
    "tf32": (lambda v: setattr(_CUDA.matmul, "fp32_precision", v), "tf32", "none"),
    "fp16_reduction": (
        lambda v: setattr(_CUDA.matmul, "allow_fp16_reduced_precision_reduction", v), False, True,
    ),
    "bf16_reduction": (
        lambda v: setattr(_CUDA.matmul, "allow_bf16_reduced_precision_reduction", v), False, True,
    ),
    "fp16_accumulation": (lambda v: setattr(_CUDA.matmul, "allow_fp16_accumulation", v), True, False),
    "flash": (_CUDA.enable_flash_sdp, False, True),
    "memory_efficient": (_CUDA.enable_mem_efficient_sdp, False, True),
    "math": (_CUDA.enable_math_sdp, False, True),
    "cudnn_attention": (_CUDA.enable_cudnn_sdp, False, True),
    "attention_reduction": (_CUDA.allow_fp16_bf16_reduction_math_sdp, True, False),
}  # fmt: skip


def scaled_products(x: Tensor) -> Tensor:
    return (x @ x).relu()


@pytest.mark.parametrize("name", SETTINGS)
@torch.no_grad()
def test_a_setting_is_a_condition(name: str) -> None:
    put, other, usual = SETTINGS[name]
    put(usual)
    before = engine().settings()
    call = torch.compile(scaled_products, backend="airgraph", dynamic=False)
    x = torch.eye(3)
    call(x)
    try:
        put(other)
        assert engine().settings() != before
        torch.testing.assert_close(call(x), scaled_products(x))
    finally:
        put(usual)
    assert engine().settings() == before
    one, another = report()["graphs"]
    # Some of them Dynamo guards itself, and makes another graph.
    expected = "settings of torch that kernels depend on have changed" if one["name"] == another["name"] else "new key"
    assert another["reason"] == expected
    torch.testing.assert_close(call(x), scaled_products(x))
    assert len(report()["graphs"]) == 2


@pytest.mark.skipif(not torch.backends.cuda.is_built(), reason="this torch is without cuda")
def test_the_limit_of_benchmarks_is_told_apart() -> None:
    seen = set()
    for value in (1, 2, 7):
        # The flag by itself can no longer be set once torch.testing has frozen all of them.
        with torch.backends.cudnn.flags(benchmark_limit=value):
            seen.add(engine().settings())
    assert len(seen) == 3


def test_the_order_of_attention_kernels_is_told_apart() -> None:
    before, order = engine().settings(), torch._C._get_sdp_priority_order()
    try:
        torch._C._set_sdp_priority_order(order[::-1])
        assert engine().settings() != before
    finally:
        torch._C._set_sdp_priority_order(order)
    assert engine().settings() == before
