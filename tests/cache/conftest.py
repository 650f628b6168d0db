"""Processes that are started again and again, for the tests of this folder."""

from collections.abc import Iterator

import pytest
from starts import Starts


@pytest.fixture(scope="session")
def starts() -> Iterator[Starts]:
    with Starts(PYTHONHASHSEED="1") as made:
        yield made


@pytest.fixture(scope="session")
def other_starts() -> Iterator[Starts]:
    """In these, sets of texts have another order."""
    with Starts(PYTHONHASHSEED="2") as made:
        yield made
