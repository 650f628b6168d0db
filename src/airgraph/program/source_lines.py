"""Which line of the user's code an operator comes from."""

from __future__ import annotations

import functools
import os
import re
import sys

import torch
from torch.fx import Node

__all__ = ["of_caller", "of_node", "of_trace"]

_FILE_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_OUR_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_TORCH_FOLDER = os.path.dirname(os.path.abspath(torch.__file__))


def of_node(node: Node) -> str:
    """The innermost line of the node's stack trace that is neither torch's, such as a default device's, nor ours, as
    "file:line", or ""."""
    return of_trace(node.meta.get("stack_trace") or "")


# The operators of a line, and the layers of a model, have one trace.
@functools.lru_cache(maxsize=1024)
def of_trace(text: str) -> str:
    """The same of a stack trace, as Python writes it."""
    matches = _FILE_LINE.findall(text)
    own = [each for each in matches if not each[0].startswith((_OUR_FOLDER, _TORCH_FOLDER))] or matches
    return f"{own[-1][0]}:{own[-1][1]}" if own else ""


def of_caller() -> str:
    """The innermost line on the current stack that is neither torch's nor ours, as "file:line", or ""."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_OUR_FOLDER, _TORCH_FOLDER, "<")):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""
