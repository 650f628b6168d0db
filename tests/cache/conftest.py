"""Processes that are started again and again, for the tests of this folder."""

import pytest
from starts import Starts


@pytest.fixture(scope="session")
def starts() -> Starts:
    return Starts("1")


@pytest.fixture(scope="session")
def other_starts() -> Starts:
    """In these, sets of texts have another order."""
    return Starts("2")
