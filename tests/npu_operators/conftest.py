"""The operators are there for each test, as `airgraph run` has them where torch_npu is not."""

import importlib.util

import pytest

from airgraph import npu_operators

if importlib.util.find_spec("torch_npu"):
    # There it has its own, which tests/npu compares the schemas with.
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True, scope="session")
def registered() -> None:
    npu_operators.register()
