"""How a warning looks: one line of a command's, or as in any Python program."""

from __future__ import annotations

import warnings

__all__ = ["as_lines", "as_python_does"]

_OF_PYTHON = warnings.formatwarning


def as_lines() -> None:
    """Show warnings as `airgraph: warning: ...` from now on."""
    warnings.formatwarning = _line


def as_python_does() -> None:
    """Show warnings with file and line from now on, for a program of the user's."""
    warnings.formatwarning = _OF_PYTHON


def _line(message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None) -> str:
    said = " ".join(str(message).split()).removeprefix("airgraph: ")
    return f"airgraph: warning: {said}\n"
