"""Blocks that ask how their operators are to run, which no capture heeds: a warning says so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.fx import Graph
from torch.fx.traceback import annotate

from airgraph.user_warning import warn_user

__all__ = ["unheeded", "warn_of_unheeded"]

# In `node.meta["custom"]`, before what was asked for.
_KEY = "airgraph_unheeded_"

_said: set[str] = set()


@contextlib.contextmanager
def unheeded(request: str) -> Iterator[None]:
    """A block that asks for what may change its time, and never its results; a warning says that it is not heeded.

    request: as the user called it. The warning comes once a process, with the first operator of such a block that is
    traced, or at once outside of a trace.
    """
    if torch.compiler.is_compiling():
        with annotate({_KEY + request: True}):
            yield
    else:
        _say(request)
        yield


def warn_of_unheeded(graph: Graph) -> None:
    """Say of a traced graph what its blocks ask for in vain."""
    for node in graph.nodes:
        for key in node.meta.get("custom") or ():
            if isinstance(key, str) and key.startswith(_KEY):
                _say(key.removeprefix(_KEY))


def _say(request: str) -> None:
    if request not in _said:
        _said.add(request)
        warn_user(f"{request} has no effect: results are the same, and operators run as without it.")
