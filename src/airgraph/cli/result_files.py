"""May a command write its result to this file? Asked before the work; what fails later names the file as well."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from airgraph.cli.failure import CommandError, UsageProblem

__all__ = ["check_writable", "write_to"]


def check_writable(path: Path) -> None:
    """Raises UsageProblem where a file cannot be written; nothing is changed or left behind."""
    # What a link leads to need not be there yet.
    target = Path(os.path.realpath(path))
    try:
        if not target.parent.is_dir():
            raise UsageProblem(f"there is no folder {target.parent} for {path.name}: make it first")
        if not target.exists():
            # Such as in /proc, permissions do not tell.
            target.open("x").close()
            target.unlink()
        elif target.is_file() or target.is_dir():
            target.open("ab").close()
        elif not os.access(target, os.W_OK):
            # Opening a pipe would wait for its reader.
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise UsageProblem(f"{path} cannot be written: {error.strerror}") from error


def write_to(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` write it. Raises CommandError where it cannot."""
    try:
        write(path)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror or error}") from error
