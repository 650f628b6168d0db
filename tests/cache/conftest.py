"""Processes that are started again and again, for the tests of this folder."""

from collections.abc import Iterator

import pytest
from starts import Starts


@pytest.fixture(scope="module")
def starts() -> Iterator[Starts]:
    with Starts(PYTHONHASHSEED="1") as made:
        yield made
