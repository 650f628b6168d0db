"""Which products of whole numbers are made without a shift, and what stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import airgraph
from airgraph.runtime.engine.loading import engine_status

pytestmark = pytest.mark.skipif(not engine_status().loaded, reason="the native engine is not here")


def found_in(function: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, int]:
    with torch.no_grad():
        out = torch.compile(function, backend="airgraph", fullgraph=True, options=options)(*args)
    return out, airgraph.explain().to_dict()["passes"].get("int_products", 0)


def arguments(rows: int = 2) -> tuple[Tensor, Tensor]:
    # The extremes too, of which other kernels' sums saturate.
    x, weight = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((rows, 96), (40, 96)))
    x[0], weight[0], weight[1] = -128, -128, 127
    return x, weight


def shifted(x: Tensor, weight: Tensor) -> Tensor:
    """As torchao does it."""
    unsigned = (x.to(torch.int32) + 128).to(torch.uint8)
    sums = weight.t().sum(dim=0, keepdim=True, dtype=torch.int32)
    return torch._int_mm(unsigned, weight.t()) - sums * 128


@pytest.mark.parametrize("rows", [1, 5, 8])
def test_a_shift_is_left_out(rows: int) -> None:
    x, weight = arguments(rows)
    out, found = found_in(shifted, x, weight)
    assert found == 1
    assert torch.equal(out, (x.long() @ weight.long().t()).int())
    (graph,) = airgraph.explain().to_dict()["graphs"]
    # The transposed weight has no call.
    assert graph["nodes"] == 1


@pytest.mark.parametrize(
    "what", ["rows", "exact", "other shift", "used twice", "other sums", "written", "turned round", "float"]
)
def test_what_stays_as_it_is(what: str) -> None:
    x, weight = arguments(9 if what == "rows" else 2)
    other = weight.flip(0).contiguous()

    def program(x: Tensor, weight: Tensor, other: Tensor) -> Any:
        unsigned = (x.to(torch.int32) + (127 if what == "other shift" else 128)).to(torch.uint8)
        product = torch._int_mm(unsigned, weight.t())
        if what == "written":
            weight.neg_()
        summed = other if what == "other sums" else weight
        sums = summed.t().sum(dim=0, keepdim=True, dtype=torch.int32) * (128.0 if what == "float" else 128)
        result = sums - product if what == "turned round" else product - sums
        return (result, product) if what == "used twice" else result

    args = [each.clone() for each in (x, weight, other)]
    out, found = found_in(program, *args, kernels="exact" if what == "exact" else "fast")
    assert found == 0
    torch.testing.assert_close(out, program(x, weight, other), rtol=0, atol=0)
