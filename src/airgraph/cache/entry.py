"""A cached graph at work: reads its arguments from a call's, checks them, replays, builds the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from airgraph.cache.admission import why_not_admitted
from airgraph.cache.conditions import Condition
from airgraph.cache.graph_format import graph_from
from airgraph.cache.manifest import Manifest, State
from airgraph.cache.reader import build_reader, build_result
from airgraph.cache.roots import Roots
from airgraph.cache.source_path import parse
from airgraph.cache.watch import Watch
from airgraph.capture.callable import GraphedCallable, NotAdmitted
from airgraph.capture.ledger import ledger
from airgraph.errors import CacheError
from airgraph.options import Options
from airgraph.program.dump import dump_for
from airgraph.program.program import CaptureProgram
from airgraph.runtime.registry import runtime_for

__all__ = ["MISS", "Entry"]

MISS = object()


class Entry:
    """Serves the calls that its graph is right for.

    1. What the graph takes from the object that a method is bound to is read once, and watched: a call sees by identity
       whether it is all as it was, and reads it again if not.
    2. What it takes from the arguments is read at every call, with the conditions that tracing put on them.
    3. Shapes are compared with the capture's at a replay, and with the graph's before a capture.
    """

    def __init__(self, manifest: Manifest, path: Path, roots: Roots, options: Options) -> None:
        """path: the manifest's file, for messages. Raises CacheError for a manifest that does not fit the function."""
        self.manifest = manifest
        self.path = path
        self._roots = roots
        self._device_type = manifest.device.type
        for source in (*(each.path for each in manifest.inputs), *(each.path for each in manifest.conditions)):
            if not source.is_global and source.root not in roots.names():
                raise CacheError(f"{path}: {source.text}: the function has no parameter {source.root!r}")
        self._program = self._make_program(options)
        self._graphed = GraphedCallable(self._program, runtime_for(self._device_type), options)
        # Built once here, so that a structure that cannot be built is known before a call.
        try:
            self._build = build_result(manifest, roots.parameters, roots.fixed())
        except CacheError as error:
            raise CacheError(f"{path}: {error}") from error
        self._read: Callable[..., list[Any] | None] | None = None
        self._changed: Callable[[], bool] = lambda: True

    @property
    def graph_name(self) -> str:
        return self._program.name

    def call(self, values: Sequence[Any]) -> Any:
        """The function's result for these values of its parameters, or MISS: then nothing was executed."""
        if self._changed() and not self._bind(values):
            return MISS
        args = self._read(*values)  # type: ignore[misc]
        if args is None or torch.is_autocast_enabled(self._device_type) is (self.manifest.state.autocast is None):
            return MISS
        try:
            outputs = self._graphed(args)
        except NotAdmitted:
            return MISS
        return self._build(outputs, *values)

    def why_not(self, values: Sequence[Any]) -> str:
        """Why a call with these values was a MISS, in words."""
        read = self._roots.at(values)
        state = State.now(self._device_type)
        if state != self.manifest.state:
            return f"it was traced under {self.manifest.state}, now {state}"
        reasons = (condition.broken(read) for condition in self.manifest.conditions)
        reason = next((reason for reason in reasons if reason is not None), None)
        if reason is not None:
            return reason
        try:
            args = [read(each.path) for each in self.manifest.inputs]
        except (LookupError, AttributeError, TypeError) as error:
            return f"an argument is missing: {error}"
        return self._program.why_not_admitted(args) or "an argument has another form than conditions say"  # type: ignore[misc]

    def _bind(self, values: Sequence[Any]) -> bool:
        """Read what does not come from the call's arguments, and check what was taken for granted about it."""
        self._changed = lambda: True
        read, fixed = self._roots.at(values), self._roots.fixed()
        if State.now(self._device_type) != self.manifest.state:
            return False
        if any(condition.broken(read) is not None for condition in self.manifest.conditions):
            return False
        watch = Watch()
        for name, cell in self._roots.cells.items():
            if name in fixed:
                watch.add(parse(f"L[{name!r}].cell_contents"), cell)
        try:
            for condition in self.manifest.conditions:
                if condition.path.root in fixed and not condition.path.is_global:
                    watch.add_condition(condition, watch.add(condition.path, fixed[condition.path.root]))
                    self._watch_other(watch, condition, fixed)
            taken = [
                watch.add(each.path, fixed[each.path.root]) if each.path.root in fixed else None
                for each in self.manifest.inputs
            ]
        except (LookupError, AttributeError, TypeError):
            return False
        self._build = build_result(self.manifest, self._roots.parameters, fixed)
        self._read = build_reader(self.manifest, self._roots.parameters, read.locals, taken)
        self._changed = watch.compile()
        return True

    def _watch_other(self, watch: Watch, condition: Condition, fixed: Mapping[str, Any]) -> None:
        if condition.kind == "same":
            other = parse(condition.expected)
            if other.root in fixed and not other.is_global:
                watch.add(other, fixed[other.root])

    def _make_program(self, options: Options) -> CaptureProgram:
        manifest = self.manifest
        try:
            gm = graph_from(manifest.graph)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CacheError(f"{self.path}: the graph is malformed: {type(error).__name__}: {error}") from error
        except CacheError as error:
            raise CacheError(f"{self.path}: {error}") from error
        placeholders = gm.graph.find_nodes(op="placeholder")
        outputs = gm.graph.output_node().args[0]
        if len(placeholders) != len(manifest.inputs):
            raise CacheError(f"{self.path}: {len(manifest.inputs)} inputs for a graph of {len(placeholders)}")
        views = dict(manifest.input_views)
        if any(i >= len(outputs) or base >= len(placeholders) for i, base in views.items()):  # type: ignore[arg-type]
            raise CacheError(f"{self.path}: an output is said to be a view of an input that is not there")

        def why_not(args: Sequence[Any]) -> str | None:
            return why_not_admitted(manifest.inputs, manifest.shape_conditions, args)

        plans = tuple(replace(each.plan, varies=each.path.root in self._roots.parameters) for each in manifest.inputs)
        name = ledger.next_name()
        return CaptureProgram(name, gm, plans, manifest.device, views, dump_for(name, options.dump_dir), why_not)
