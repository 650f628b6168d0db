"""Models that torchao has quantised: their products are those that this processor has for them, at both doors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from doors import both_doors, through
from reports import report
from torch import Tensor, nn
from torchao.kernel import intmm
from torchao.quantization import (
    Int8DynamicActivationInt8WeightConfig,
    Int8DynamicActivationIntxWeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    PerGroup,
    quantize_,
)

from airgraph.runtime.engine.loading import engine_status

pytestmark = [
    pytest.mark.skipif(not engine_status().loaded, reason="the native engine is not here"),
    pytest.mark.filterwarnings("ignore"),
]

# Each with the pass that finds its products.
_CONFIGS: dict[str, tuple[Callable[[], Any], str]] = {
    "int8 weights": (Int8WeightOnlyConfig, "mixed_products"),
    "int8 throughout": (Int8DynamicActivationInt8WeightConfig, "int_products"),
    "groups of int4": (
        lambda: IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
        "grouped_products",
    ),
    "groups of int4, rows of int8": (
        lambda: Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32)),
        "grouped_products",
    ),
}


def _model(config: Any, dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 96, bias=False), nn.ReLU(), nn.Linear(96, 512))
    model = model.to(dtype).eval()
    quantize_(model, config)
    return model


def _exact(layer: nn.Module, x: Tensor) -> Tensor:
    """A layer of the model, of what its weight stands for."""
    if not isinstance(layer, nn.Linear):
        return layer(x)
    weight = layer.weight
    rows, groups = weight.scale.shape
    numbers = weight.qdata.double().view(rows, groups, -1)
    if weight.zero_point is not None:
        numbers = numbers - weight.zero_point.double().view(rows, groups, 1)
    made = (numbers * weight.scale.double().view(rows, groups, 1)).view(rows, -1)
    return nn.functional.linear(x, made, None if layer.bias is None else layer.bias.double())


@torch.no_grad()
@both_doors
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", _CONFIGS)
@pytest.mark.sampled
def test_products_of_few_rows(name: str, dtype: torch.dtype, door: str, tmp_path: Path) -> None:
    config, found_by = _CONFIGS[name]
    model = _model(config(), dtype)
    call = through(door, model.forward, tmp_path)
    for rows in (1, 5):
        x = torch.randn(rows, 64, dtype=dtype)
        out, eagers = call(x), model(x)
        if "throughout" in name:
            # Whole numbers: the same ones.
            torch.testing.assert_close(out, eagers, rtol=0, atol=0)
            continue
        if "rows of int8" in name:
            # Rows are rounded to int8 in each layer; sums that are rounded otherwise lead to other ones.
            assert (out - eagers).abs().max() <= eagers.abs().max() / 100
            continue
        exact = x.double()
        for layer in model:
            exact = _exact(layer, exact)
        ours, theirs = ((each.double() - exact).square().mean().sqrt() for each in (out, eagers))
        assert ours <= theirs * 1.05
    passes = report()["passes"]
    makes_unsigned = intmm._cpu_is_vnni_supported() and not intmm._cpu_is_amx_tile_supported()
    if found_by == "int_products" and not makes_unsigned:
        # torchao makes no rows unsigned here, so there is nothing to take back: see the next test.
        assert passes.get(found_by, 0) == 0
    else:
        assert passes[found_by] % 2 == 0 and passes[found_by] > 0
    assert all(row["state"] == "captured" for row in report()["graphs"])


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("makes_unsigned", [False, True])
def test_rows_of_int8_on_other_processors(
    makes_unsigned: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchao asks the processor whether it makes rows unsigned; whatever it does, the products are the same."""
    model = _model(Int8DynamicActivationInt8WeightConfig(), dtype)
    x = torch.randn(5, 64, dtype=dtype)
    eagers = model(x)
    monkeypatch.setattr(intmm, "_cpu_is_vnni_supported", lambda: makes_unsigned)
    monkeypatch.setattr(intmm, "_cpu_is_amx_tile_supported", lambda: False)
    out = torch.compile(model, backend="airgraph", fullgraph=True)(x)
    torch.testing.assert_close(out, eagers, rtol=0, atol=0)
    assert report()["passes"].get("int_products", 0) == (2 if makes_unsigned else 0)


@torch.no_grad()
@pytest.mark.parametrize("name", _CONFIGS)
def test_products_of_many_rows_are_eagers(name: str) -> None:
    config, _ = _CONFIGS[name]
    model = _model(config(), torch.float32)
    x = torch.randn(24, 64)
    torch.testing.assert_close(torch.compile(copy.deepcopy(model), backend="airgraph", fullgraph=True)(x), model(x))
