"""Captures before the first request comes."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from airgraph import arguments
from airgraph.capture.ledger import ledger
from airgraph.errors import OptionError
from airgraph.runtime.careful import careful
from airgraph.torch_internals import dynamo

__all__ = ["CannotGoOn", "WarmUp", "warming_threads", "warmup"]

log = logging.getLogger(__name__)

# The threads in which calls capture and do not execute, and how many calls of graphs there have been in each.
warming_threads: dict[int, int] = {}

_COMPILED = "a function or module from torch.compile or cache_compile, or one that calls such"


class CannotGoOn(Exception):
    """A warm-up needs the results of what only an execution would tell."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """captured: graphs made. refused: graphs that will run eagerly; the warnings and the report say why."""

    captured: int
    refused: int
    elapsed_ms: float


def warmup(compiled: Callable[..., Any], calls: Sequence[Any], *, progress: bool = True) -> WarmUp:
    """Capture a compiled function for each of `calls`, the largest first, so that no request pays for it.

    compiled: from torch.compile or `cache_compile`, or what calls such a one, as a module with compiled layers does.
    Anything else would be executed as it is: after its first call that is an OptionError.
    calls: a list: for each shape the arguments as a tuple, or one tensor.
    Call it as requests come, under `torch.no_grad()` or `torch.inference_mode()`: Dynamo compiles for one or the other.
    No graph is executed, so arguments, caches that graphs write and random numbers are as before; the Python code
    between graphs runs, and sees tensors of zeros. What `memory_budget` or anything else refuses is
    skipped and runs eagerly later. progress: show a bar on standard error.
    Raises OptionError for what is not compiled, for `calls` of another form, and what `compiled` raises.
    """
    arguments.boolean("progress", progress)
    if not callable(compiled):
        raise OptionError(f"warmup: compiled: expected {_COMPILED}, got {arguments.shown(compiled)}.")
    given = _given(calls)
    captured, skipped = ledger.captures, len(_skipped())
    start = time.perf_counter()
    with _warming() as me:
        for call in _tracked(given, show=progress):
            try:
                compiled(*call)
            except CannotGoOn as stop:
                log.info("warmup: nothing is captured past it: %s", stop)
            # Uncompiled, it will be so at each of them.
            if not warming_threads[me] and not dynamo.is_switched_off():
                raise OptionError(
                    f"warmup: compiled: expected {_COMPILED}, got {arguments.shown(compiled)}. It was executed once, "
                    "and came to no graph of airgraph."
                )
    elapsed_ms = (time.perf_counter() - start) * 1e3
    return WarmUp(ledger.captures - captured, len(_skipped()) - skipped, elapsed_ms)


def _given(calls: Any) -> list[tuple[Any, ...]]:
    """The arguments of each call, the largest first."""
    can_be_gone_through = hasattr(calls, "__iter__") or hasattr(calls, "__getitem__")
    # These can, and are no list of calls.
    if not can_be_gone_through or isinstance(calls, (torch.Tensor, str, bytes, Mapping)):
        raise OptionError(
            "warmup: calls: expected a list of calls, each a tuple of arguments or a tensor, got "
            f"{type(calls).__name__}. One call is a list of one."
        )
    return sorted((_arguments(call, i) for i, call in enumerate(calls)), key=_nbytes, reverse=True)


def _arguments(call: Any, position: int) -> tuple[Any, ...]:
    if isinstance(call, torch.Tensor):
        return (call,)
    if isinstance(call, (tuple, list)):
        return tuple(call)
    raise OptionError(f"warmup: call {position}: expected a tuple of arguments or a tensor, got {type(call).__name__}.")


def _nbytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.nbytes
    if isinstance(value, dict):
        value = tuple(value.values())
    return sum(map(_nbytes, value)) if isinstance(value, (tuple, list)) else 0


def _skipped() -> list[Any]:
    return [record for record in ledger.records if record.state == "skipped"]


@contextmanager
def _warming() -> Iterator[int]:
    """Capture only, and without garbage collections, which in a large process cost more than the captures."""
    me = threading.get_ident()
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        with careful():
            warming_threads[me] = 0
            yield me
    finally:
        warming_threads.pop(me, None)
        if was_enabled:
            gc.enable()


def _tracked(calls: list[tuple[Any, ...]], *, show: bool) -> Iterator[tuple[Any, ...]]:
    if not show:
        yield from calls
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(calls, "capturing", console=Console(stderr=True), transient=False)
