"""Python's arguments of a call become what its schema asks for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from own_calls import by_engine

from airgraph.runtime.engine.loading import engine_status

pytestmark = pytest.mark.skipif(not engine_status().loaded, reason="the native engine is not here")


def test_by_position_by_name_and_by_default() -> None:
    x, out = torch.arange(6.0).view(2, 3), torch.empty(2)
    by_engine("aten::sum", x, [1], overload="dim_IntList", out=out)
    assert torch.equal(out, x.sum(1))
    by_engine("aten::sum", x, overload="dim_IntList", dim=[1], keepdim=False, dtype=torch.float32, out=out)
    assert torch.equal(out, x.sum(1))
    # One number for a list of a given length.
    pooled = torch.empty(1, 1, 2)
    by_engine("aten::avg_pool1d", torch.arange(4.0).view(1, 1, 4), 2, out=pooled)
    assert pooled.flatten().tolist() == [0.5, 2.5]


def test_a_number_for_a_tensor_is_a_wrapped_number() -> None:
    """So it does not decide the type of the result, as in eager."""
    out = torch.empty(3, dtype=torch.bfloat16)
    by_engine("aten::add", torch.ones(3, dtype=torch.bfloat16), 0.5, overload="Tensor", out=out)
    assert out.tolist() == [1.5] * 3


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((), {}, "self is missing"),
        (([1, "two"],), {}, "self is of type list, not Tensor"),
        ((torch.ones(2), 1), {}, "it takes 1 of 2 arguments by position"),
        ((torch.ones(2),), {"other": 1}, r"it takes 1 of 1 arguments by position and \['other'\] by name"),
    ],
)
def test_what_does_not_fit_names_the_schema(args: tuple[Any, ...], kwargs: dict[str, Any], said: str) -> None:
    with pytest.raises(RuntimeError, match=rf"(?s)a call does not fit its schema: {said}.*aten::abs\(Tensor self\)"):
        by_engine("aten::abs", *args, out=torch.empty(2), **kwargs)


def test_what_has_a_name_alone_is_not_taken_by_position() -> None:
    x = torch.ones(2)
    with pytest.raises(RuntimeError, match="it takes 2 of 3 arguments by position"):
        by_engine("aten::add", x, x, 2, overload="Tensor", out=torch.empty(2))
