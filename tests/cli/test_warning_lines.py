"""A warning is one line of the command's, which names airgraph once."""

import warnings

import pytest

from airgraph.cli import warning_lines


@pytest.mark.parametrize("said", ["airgraph: a call is\n  not cached", "a call is not cached"])
def test_a_warning_of_airgraph_has_one_prefix(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    warning_lines.as_lines()
    line = warnings.formatwarning(UserWarning(said), UserWarning, "file.py", 3)
    assert line == "airgraph: warning: a call is not cached\n"
