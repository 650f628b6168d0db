# SPDX-License-Identifier: Apache-2.0
"""No entry point of libopapi without a test. conftest.py lets it run last."""

from __future__ import annotations

import ctypes
import sys

import pytest

CALLERS = ("test_operators", "test_npu_operators", "test_random_operators")


def operator_calls() -> dict[str, int]:
    """How often each operator of libopapi was called in this process."""
    ask = ctypes.CDLL("libopapi.so").simcann_operator_calls
    ask.restype = ctypes.c_uint64
    ask.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
    count = ask(None, None, 0)
    names, calls = (ctypes.c_char_p * count)(), (ctypes.c_uint64 * count)()
    ask(names, calls, count)
    return {name.decode(): times for name, times in zip(names, calls, strict=True) if name}


def test_every_entry_point_was_called(request: pytest.FixtureRequest) -> None:
    if not set(CALLERS) <= set(sys.modules) or request.config.option.keyword:
        pytest.skip(f"counts calls only in a whole run of {', '.join(CALLERS)}")
    untested = sorted(name for name, calls in operator_calls().items() if calls == 0)
    assert not untested, f"add a case to simcann/tests/operator_cases.py for: {', '.join(untested)}"
