# SPDX-License-Identifier: Apache-2.0
"""These tests run in an environment with the real torch_npu, on the simulated runtime."""

from __future__ import annotations

import pytest

import simcann

simcann.enable()

import torch_npu  # noqa: E402, F401


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=2, help="that end one after another; 24 if in doubt")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What counts the operators' calls comes after the tests that call them."""
    items.sort(key=lambda item: "test_operator_coverage" in item.nodeid)
