"""Calls code of the user's: what it raises is shown by its own lines and one sentence."""

from __future__ import annotations

import os
import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

from airgraph.cli.failure import CommandError, UsageProblem
from airgraph.cli.standard_streams import complain

__all__ = ["called"]

SAID_WIDTH = 300
_Result = TypeVar("_Result")
_PASSED_OVER = (str(Path(__file__).parents[2]) + os.sep, str(Path(torch.__file__).parent) + os.sep, "<frozen ")


def called(what: str, function: Callable[..., _Result], *args: Any, **kwargs: Any) -> _Result:
    """function(*args, **kwargs), which belongs to the user.

    Raises UsageProblem for whatever it raises, beginning with `what`, after the lines of the user's that led to it.
    """
    try:
        return function(*args, **kwargs)
    except CommandError:
        raise
    except SystemExit as ended:
        hint = "let it do its work under `if __name__ == '__main__':`"
        raise UsageProblem(f"{what} ends the process by sys.exit({ended.code!r}): {hint}") from ended
    except Exception as error:
        complain("".join(_lines(error)).rstrip())
        said = textwrap.shorten(next(iter(str(error).strip().splitlines()), ""), SAID_WIDTH, placeholder=" ...")
        raise UsageProblem(f"{what} fails: {type(error).__name__}{f': {said}' if said else ''}") from error


def _lines(error: Exception) -> list[str]:
    """The traceback without frames of torch, of airgraph and of imports."""
    whole = traceback.TracebackException.from_exception(error)
    current: traceback.TracebackException | None = whole
    while current is not None:
        current.stack[:] = [frame for frame in current.stack if not frame.filename.startswith(_PASSED_OVER)]
        current = current.__cause__ or current.__context__
    return list(whole.format())
