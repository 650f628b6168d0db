"""The ways of running a workload: each made, called for the first time and compared with eager, before it is timed."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import nn

import airgraph
from airgraph.cli.bench import agreement
from airgraph.cli.bench.timing import Timed
from airgraph.cli.bench.user_code import called
from airgraph.cli.bench.workload import Workload
from airgraph.cli.failure import UsageProblem
from airgraph.errors import AirgraphError, CacheError, OptionError

__all__ = ["AIRGRAPH", "CACHED", "EAGER", "INDUCTOR", "NAMES", "Checked", "LeftOut", "Maker"]

EAGER = "eager"
INDUCTOR = "Inductor"
AIRGRAPH = "airgraph"
CACHED = "airgraph, cached"
NAMES = (EAGER, INDUCTOR, AIRGRAPH, CACHED)
# The first compiles and captures, the second is the first replay.
CHECKED_CALLS = 3
SEED = 0
REASON_WIDTH = 300


@dataclass(frozen=True, slots=True)
class Checked:
    """A way that gives eager's results. from_files_s: the first call of the next start, where graphs are in files.

    notes: what did not go as it should, such as a graph that runs uncaptured.
    """

    timed: Timed
    first_call_s: float
    max_abs_difference: float
    from_files_s: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A way that is not timed, and why. failed: it should have worked, or its results differ from eager's."""

    reason: str
    failed: bool


class Maker:
    """Makes the ways of one workload, eager first: its results are those that the others are compared with.

    folder: where cached graphs go; it must outlive the ways.
    """

    def __init__(self, workload: Workload, *, dynamic: bool, folder: Path) -> None:
        self._workload = workload
        self._dynamic = dynamic
        self._folder = folder
        self._finish = _finish_of(workload)
        self._expected: list[Any] = []

    def make(self, name: str) -> Checked | LeftOut:
        """A way of NAMES. Raises UsageProblem where the workload fails in eager, or gives no result twice."""
        if name == EAGER:
            eager = self._checked(name)
            if isinstance(eager, LeftOut):
                raise UsageProblem(
                    f"{self._workload.name} does not give the same results twice in eager, so that none can be "
                    f"compared: {eager.reason}"
                )
            return eager
        before = len(airgraph.explain().graphs)
        try:
            made = self._checked(name)
        except Exception as error:
            return _left_out(name, error)
        if isinstance(made, LeftOut):
            return made
        rows = airgraph.explain().graphs[before:]
        notes = tuple(f"{row['name']} runs eagerly: {row['reason']}" for row in rows if row["state"] == "skipped")
        if name == AIRGRAPH and not rows:
            notes = ("nothing is captured: torch.compile made no graph of it, and it runs as in eager",)
        return Checked(made.timed, made.first_call_s, made.max_abs_difference, made.from_files_s, notes)

    def _checked(self, name: str) -> Checked | LeftOut:
        own = self._workload.with_own_arguments()
        state = own.state()
        start = perf_counter()
        function = self._function(name)
        result = self._call(function, own)
        first_call_s = perf_counter() - start
        difference = 0.0
        for number in range(CHECKED_CALLS):
            if number:
                result = self._call(function, own)
            found = agreement.values(result, state.tensors)
            self._expected = self._expected or found
            largest, problem = agreement.largest_difference(found, self._expected)
            if problem is not None:
                return LeftOut(f"results differ from eager's in call {number + 1}: {problem}", failed=True)
            difference = max(difference, largest)
            # What is not written may overlap in memory, and could not be.
            written = state.changed()
            written.restore()
        from_files_s = None
        if name == CACHED:
            function, from_files_s = self._started_again(own)
            written.restore()
        timed = Timed(
            name, function, own.args, dict(own.kwargs), written.restore, self._finish, self._workload.calls_at_most
        )
        return Checked(timed, first_call_s, difference, from_files_s)

    def _started_again(self, own: Workload) -> tuple[Callable[..., Any], float]:
        """What the next start has: the function as its files make it."""
        start = perf_counter()
        function = self._function(CACHED)
        self._call(function, own)
        return function, perf_counter() - start

    def _function(self, name: str) -> Callable[..., Any]:
        function, dynamic = self._workload.function, self._dynamic
        if name == INDUCTOR:
            return torch.compile(function, dynamic=dynamic)
        if name == AIRGRAPH:
            return torch.compile(function, backend=airgraph.get_backend(), dynamic=dynamic)
        if name == CACHED:
            return airgraph.inference.cache_compile(
                _plain(function), dynamic=dynamic, cache_dir=self._folder, strict=True
            )
        return function

    def _call(self, function: Callable[..., Any], own: Workload) -> Any:
        torch.manual_seed(SEED)
        with torch.inference_mode():
            # The workload itself is the user's, and what it raises is shown as such.
            as_is = function is own.function
            result = called(own.name, function, *own.args, **own.kwargs) if as_is else function(*own.args, **own.kwargs)
        self._finish()
        return result


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function or method behind a module or another object that can be called."""
    if isinstance(function, nn.Module):
        return function.forward
    return function if inspect.isroutine(function) else function.__call__  # type: ignore[operator]


def _left_out(name: str, error: Exception) -> LeftOut:
    if name == CACHED and isinstance(error, (CacheError, OptionError)):
        return LeftOut(str(error), failed=False)
    said = [line for line in str(error).splitlines() if line.strip()]
    what = error if isinstance(error, AirgraphError) else f"{type(error).__name__}: {said[0] if said else ''}"
    reason = textwrap.shorten(str(what), REASON_WIDTH, placeholder=" ...")
    # Inductor may have no compiler here, or may not know the device: no fault of this comparison.
    return LeftOut(reason, failed=name != INDUCTOR)


def _finish_of(workload: Workload) -> Callable[[], None]:
    """What waits for the devices of a workload; nothing on the CPU."""
    state: Sequence[Any] = workload.state().tensors
    function = workload.function
    tensors = [*state, *(function.parameters() if isinstance(function, nn.Module) else ())]
    kinds = sorted({tensor.device.type for tensor in tensors} - {"cpu", "meta"})
    waits = [torch.get_device_module(kind).synchronize for kind in kinds]

    def finish() -> None:
        for wait in waits:
            wait()

    return finish
