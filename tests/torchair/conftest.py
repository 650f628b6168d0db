"""Tests that take `device` run on each that is here."""

from collections.abc import Iterator

import pytest
from devices import on_each

from airgraph.passes import pattern_fusion
from airgraph.program import unheeded

pytest_generate_tests = on_each


@pytest.fixture(autouse=True)
def nothing_said_or_registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Warnings that come once a process come once a test."""
    monkeypatch.setattr(unheeded, "_said", set())
    yield
    pattern_fusion._rules.clear()
