# SPDX-License-Identifier: Apache-2.0
"""Every aclnn entry point against the CPU: the cases of operator_cases.py, the same values on both sides."""

from __future__ import annotations

import copy
import zlib
from typing import Any

import pytest
import torch
from operator_arguments import make, tensors_in, to_device
from operator_cases import CASES, Case

# Both sides run torch's CPU kernels, but perhaps another one of several for the same operator.
TOLERANCE = {
    torch.float32: {"rtol": 1e-5, "atol": 1e-5},
    torch.float16: {"rtol": 2e-3, "atol": 2e-3},
    torch.bfloat16: {"rtol": 1.6e-2, "atol": 1.6e-2},
}


def check(case: Case, dtype: torch.dtype) -> None:
    """Run a case on both sides; its result and what it did to its arguments must agree."""
    generator = torch.Generator().manual_seed(zlib.crc32(case.name.encode()))
    recipe = make(case.arguments, dtype, generator)
    here, there = to_device(copy.copy(recipe), "cpu"), to_device(recipe, "npu")
    expected: Any = case.call(*here)
    result: Any = case.call(*there)
    wanted, got = tensors_in((expected, here)), tensors_in((result, there))
    assert len(wanted) == len(got)
    for want, have in zip(wanted, got, strict=True):
        assert have.shape == want.shape
        assert have.dtype == want.dtype
        torch.testing.assert_close(have.cpu(), want, equal_nan=True, **TOLERANCE.get(want.dtype, {}))
    if not tensors_in(expected):
        assert result == expected


@pytest.mark.parametrize(
    ("case", "dtype"),
    [pytest.param(case, dtype, id=f"{case.name}-{str(dtype)[6:]}") for case in CASES for dtype in case.dtypes],
)
def test_agrees_with_cpu(case: Case, dtype: torch.dtype) -> None:
    check(case, dtype)
