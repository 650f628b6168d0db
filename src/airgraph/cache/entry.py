"""A cached graph at work: reads its arguments from a call's, checks them, replays, builds the result."""

from __future__ import annotations

import builtins
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule, Node

from airgraph.cache.checking.admission import why_not_admitted
from airgraph.cache.checking.call_reader import build_reader
from airgraph.cache.checking.module_sources import absent_among, builtins_among, namespace_of
from airgraph.cache.checking.rebuilding import build_result
from airgraph.cache.checking.scope import Reader, Roots
from airgraph.cache.checking.watch import Watch
from airgraph.cache.format.graph import graph_from
from airgraph.cache.format.guard import Guard
from airgraph.cache.format.guards import Apart, Equals, OfClass, Same
from airgraph.cache.format.manifest import CachedInput, Manifest
from airgraph.cache.format.process import Process
from airgraph.cache.format.source_path import Attribute, parse
from airgraph.cache.format.torch_settings import State, settled
from airgraph.cache.tracing.side_effects import why_no_item, why_not_written
from airgraph.capture.callable import GraphedCallable
from airgraph.capture.ledger import ledger
from airgraph.errors import (
    CacheError,
    CannotCapture,
    InternalError,
    NotAdmitted,
    OptionError,
    StreamError,
    Unsuited,
    UnsupportedGraph,
    Unwritable,
)
from airgraph.options import Options
from airgraph.passes.races import races_in
from airgraph.passes.stream_check import check_streams
from airgraph.program.code_identity import at_once
from airgraph.program.collectives import groups_of
from airgraph.program.dump import dump_for
from airgraph.program.inputs import InputRole
from airgraph.program.nodes import is_view, written_nodes
from airgraph.program.program import CaptureProgram
from airgraph.program.streams import check_events
from airgraph.runtime.engine.loading import engine
from airgraph.runtime.registry import runtime_for

__all__ = ["MISS", "Entry"]

MISS = object()
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_MOST_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class _Binding:
    """What was read outside the calls' arguments, made into functions; replaced as a whole, so threads see it whole."""

    # Gives the graph's arguments; None where a condition on the call does not hold, False where something changed.
    read: Callable[[tuple[Any, ...]], Any]
    build: Callable[..., Any]


class Entry:
    """Serves the calls that its graph is right for.

    1. What the graph takes from the object that a method is bound to, from variables closed over and from globals is
       read once, and watched: a call sees by identity whether it is all as it was, and reads it again if not.
    2. What it takes from the arguments is read at every call, with the guards that tracing put on them.
    3. Shapes are compared with the capture's at a replay, and with the graph's before a capture.
    """

    # Read at each call by the engine, where it lies in the object.
    __slots__ = ("__dict__", "__weakref__", "door")

    def __init__(
        self,
        manifest: Manifest,
        path: Path,
        roots: Roots,
        options: Options,
        *,
        function: str,
        distrusted: bool = False,
    ) -> None:
        """path: the manifest's file, for messages. function: what the report calls it. distrusted: whether the manifest
        was not traced here.

        Raises CacheError for a manifest that does not fit the function, and OptionError for a bad AIRGRAPH_ENGINE.
        """
        self.manifest = manifest
        self.path = path
        # Serves a usual call at once, of values like `call`, or is a MISS; None: calls need more than it looks at.
        self.door: Callable[[tuple[Any, ...]], Any] | None = None
        # Calls that were served, but for those that the door counts.
        self._calls = 0
        self._roots = roots
        self._body = roots.body()
        self._builtins = {name: vars(builtins).get(name) for name in builtins_among(manifest.sources)}
        self._not_global = absent_among(manifest.sources)
        self._device = manifest.device
        every = (*manifest.inputs, *manifest.looked_at)
        for source in (*(each.path for each in every), *(each.path for each in manifest.guards)):
            if not source.is_global and source.root not in roots.names():
                raise CacheError(f"{path}: {source.text}: the function has no parameter {source.root!r}")
        guarded = {each.path for each in manifest.guards if isinstance(each, OfClass)}
        for write in manifest.writes:
            if write.owner not in guarded:
                raise CacheError(f"{path}: {write.owner.text} is written, and its class is not guarded")
        # Before the file is blamed for what fails.
        engine()
        try:
            runtime = runtime_for(self._device.type)
        except UnsupportedGraph as error:
            raise Unwritable(f"it cannot be captured: {error}") from error
        try:
            # So that a structure that cannot be built is known before a call.
            build_result(manifest, roots.parameters, roots.fixed(), roots.function_globals)
            program = _program_of(manifest, options, ledger.next_name(function))
            self._graphed = GraphedCallable(program, runtime, options, distrusted=distrusted)
        except CacheError as error:
            raise CacheError(f"{path}: {error}") from error
        except (OptionError, InternalError):
            # No fault of the file.
            raise
        except Exception as error:
            # Of PyTorch, FX and sympy, for what no file that was written by `trace` holds.
            raise CacheError(f"{path}: the graph is malformed: {type(error).__name__}: {error}") from error
        # Whether the result can be put together, which is known before the first call.
        self._is_sound = not distrusted
        self._binding: _Binding | None = None
        # What decides about a call beside what a capture compares: sizes that vary, and what is only looked at.
        varying = [i for i, each in enumerate(manifest.inputs) if each.varies]
        self._deciding = [*varying, *range(len(manifest.inputs), len(every))]
        self._admitted_before: set[Any] = set()

    def call(self, values: tuple[Any, ...]) -> Any:
        """The function's result for these values of its parameters, or MISS: then nothing was executed.

        Raises Unsuited where no graph is right, such as where an argument that is written shares memory with another;
        CannotCapture where the file is not what was written.
        """
        binding = self._binding
        args = False if binding is None else binding.read(values)
        if binding is None or args is False:
            bound = self._bind(values)
            if isinstance(bound, str):
                return MISS
            binding = bound
            args = binding.read(values)
        if args.__class__ is not list or (self.manifest.looked_at and not self._may_look_at(args)):
            return MISS
        try:
            outputs = self._graphed(args)
        except Unsuited:
            raise
        except NotAdmitted:
            return MISS
        self._calls += 1
        return binding.build(outputs, *values)

    @property
    def calls(self) -> int:
        """How many it has served."""
        door: Any = self.door
        return self._calls + (0 if door is None else int(door.calls))

    def serves(self, values: Sequence[Any]) -> bool:
        """Whether `call` would serve; nothing is executed."""
        return self.why_not(values) is None

    def why_not(self, values: Sequence[Any]) -> str | None:
        """Why a call with these values would be a MISS, in words, or None. Raises CannotCapture as a call does."""
        binding = self._bind(values)
        if isinstance(binding, str):
            return binding
        args = binding.read(tuple(values))
        try:
            is_read = args.__class__ is list
            return self._why_not_admitted(args) if is_read else "an argument is of another kind, or given twice"
        except Exception as error:
            raise CannotCapture(f"its inputs are malformed: {type(error).__name__}: {error}") from error

    def _check_sound(self, values: Sequence[Any], fixed: Mapping[str, Any], read: Reader) -> None:
        """Raises CannotCapture where the result could not be put together after the graph has run."""
        try:
            for each in self.manifest.writes:
                step, owner = each.step, read(each.owner)
                if isinstance(step, Attribute):
                    reason = why_not_written(each.owner, owner, step.name, is_tensor=False)
                else:
                    reason = why_no_item(each.owner, owner, step.key)
                if reason is not None:
                    raise CacheError(f"{each} is to be written, {reason}")
            outputs = [None] * len(self.manifest.graph["outputs"]["tuple"])
            names, namespace = self._roots.parameters, self._roots.function_globals
            build_result(self.manifest, names, fixed, namespace, writes=False)(outputs, *values)
        except Exception as error:
            raise CannotCapture(f"{self.path}: the result cannot be put together: {error}") from error
        self._is_sound = True

    def floats_that_vary(self, values: Sequence[Any]) -> set[str]:
        """The paths of floats that are constants here, and others in a call with these values."""
        read = self._roots.at(values)
        constants = [each for each in self.manifest.guards if isinstance(each, Equals)]
        floats = [each for each in constants if type(each.expected) is float]
        return {each.path.text for each in floats if each.broken(read) is not None}

    def _may_look_at(self, args: list[Any]) -> bool:
        """Check tensors and numbers that are no inputs of the graph, and remove them from its arguments."""
        deciding = [args[index] for index in self._deciding]
        key = tuple([arg if type(arg) is int else _form(arg) for arg in deciding])
        if key not in self._admitted_before:
            every = (*self.manifest.inputs, *self.manifest.looked_at)
            inputs = [every[index] for index in self._deciding]
            if why_not_admitted(inputs, self.manifest.shape_guards, deciding) is not None:
                return False
            if len(self._admitted_before) >= _MOST_REMEMBERED:
                self._admitted_before.clear()
            self._admitted_before.add(key)
        del args[len(self.manifest.inputs) :]
        return True

    def _why_not_admitted(self, args: Sequence[Any]) -> str | None:
        every = (*self.manifest.inputs, *self.manifest.looked_at)
        return why_not_admitted(every, self.manifest.shape_guards, args)

    def _bind(self, values: Sequence[Any]) -> _Binding | str:
        """Read what does not come with the call, and check what was taken for granted; a text says what is not so."""
        with at_once():
            return self._bind_at_once(values)

    def _bind_at_once(self, values: Sequence[Any]) -> _Binding | str:
        if not self._body.is_still(self._roots.body()):
            return "the function has another body now"
        read, fixed = self._roots.at(values), self._roots.fixed()
        reason = self.manifest.state.why_other(State.now(self._device)) or self.manifest.process.why_other()
        if reason is not None:
            return reason
        replaced = next((name for name, held in self._builtins.items() if vars(builtins).get(name) is not held), None)
        if replaced is not None:
            return f"{replaced} was replaced among Python's own functions"
        namespaces = [(namespace_of(module, self._roots.function_globals), name) for module, name in self._not_global]
        hidden = next((name for held, name in namespaces if name in held), None)
        if hidden is not None:
            return f"a global {hidden} came before Python's own function"
        for guard in self.manifest.guards:
            reason = guard.broken(read)
            if reason is not None:
                return reason
        watch = Watch(self._roots.function_globals, self.manifest.codes)
        watch.add_code(self._roots.function)
        watch.add_environment(self.manifest.process.environment)
        watch.add_builtins(self._builtins)
        watch.add_not_global(namespaces)
        watch.add_hooks_of_all_modules()
        for name, cell in self._roots.cells.items():
            if name in fixed:
                watch.add(parse(f"L['{name}'].cell_contents"), {name: cell})
        # Of what cannot be watched: looked at anew at each call.
        anew: list[Guard] = []
        try:
            for guard in self.manifest.guards:
                path, to_class = guard.path, guard.path.steps_to_class
                if path.is_global or self._roots.is_fixed(path):
                    guard.watch(watch, watch.add(path, fixed))
                    anew += [guard] if watch.is_blind else []
                elif to_class is not None:
                    # The reader compares the class, and the rest is the same for all its objects.
                    class_ = type(read(replace(path, steps=path.steps[:to_class])))
                    guard.watch(watch, watch.follow(class_, path.steps[to_class + 1 :]))
                else:
                    guard.watch_class(watch, read)
                for other in guard.others if isinstance(guard, (Apart, Same)) else ():
                    if other.is_global or self._roots.is_fixed(other):
                        watch.add(other, fixed)
            every = (*self.manifest.inputs, *self.manifest.looked_at)
            taken = [_taken(watch, each, fixed, self._roots) for each in every]
            if not self._is_sound:
                self._check_sound(values, fixed, read)
            reader = build_reader(self.manifest, self._roots, read, taken)
            gate = engine().Gate(watch.compile(), settled(), reader)
            sees_all = not (anew or self.manifest.process.groups or self.manifest.looked_at)
            binding = _Binding(
                _unless_broken(gate.read, anew, fixed, self._roots.function_globals, self.manifest.process),
                build_result(self.manifest, self._roots.parameters, fixed, self._roots.function_globals),
            )
            sole = self.manifest.structure.get("output") if not self.manifest.writes else None
            build = binding.build if sole is None else sole
            door = (
                engine().Door(gate=gate, callable=self._graphed, build=build, miss=MISS, follows=self.door)
                if sees_all
                else None
            )
        except CannotCapture:
            raise
        except Exception as error:
            # Of reading what a file says: paths lead to anything.
            return f"something is missing: {error}"
        self._binding = binding
        if door is None:
            self._calls = self.calls
        self.door = door
        return binding


def _taken(watch: Watch, each: CachedInput, fixed: Mapping[str, Any], roots: Roots) -> Any:
    """The tensor or number of an input that does not come with the call; of a size its tensor, of a float its owner.

    Raises TypeError.
    """
    if each.path.is_global:
        if each.plan.role is InputRole.MUTATED or not (each.path.is_size or (each.is_tensor and not each.is_float)):
            raise TypeError(f"{each.path.text} is no argument, and no tensor that is only read")
    elif not roots.is_fixed(each.path):
        return None
    if each.is_float and not each.path.steps:
        return roots.cells[each.path.root]
    is_size = each.is_float or each.path.is_size
    value = watch.add(replace(each.path, steps=each.path.steps[:-1]) if is_size else each.path, fixed)
    if watch.is_blind:
        raise TypeError(f"{each.path.text} is another object at each look")
    if each.is_float:
        return value
    if type(value) not in (_PLAIN if each.is_tensor or is_size else (int,)):
        raise TypeError(f"{each.path.text} is of type {type(value).__name__}")
    return value


def _unless_broken(
    read: Callable[[tuple[Any, ...]], Any],
    guards: Sequence[Guard],
    fixed: dict[str, Any],
    globals_: Any,
    process: Process,
) -> Callable[[tuple[Any, ...]], Any]:
    """The same, which also looks at guards and groups of processes, which cannot be watched."""
    if not guards and not process.groups:
        return read
    look, are_groups_the_same = Reader(fixed, globals_), process.groups_now()

    def read_unless_broken(values: tuple[Any, ...]) -> Any:
        if not are_groups_the_same() or any(each.broken(look) is not None for each in guards):
            return False
        return read(values)

    return read_unless_broken


def _program_of(manifest: Manifest, options: Options, name: str) -> CaptureProgram:
    gm = graph_from(manifest.graph)
    placeholders = gm.graph.find_nodes(op="placeholder")
    if len(placeholders) != len(manifest.inputs):
        raise CacheError(f"{len(manifest.inputs)} inputs for a graph of {len(placeholders)}")
    _check_roles(gm, manifest)
    _check_streams(gm, options, name)
    _check_groups(gm, manifest)

    # Those on tensors that are no inputs are checked before, for the same sizes.
    shape_guards = () if manifest.looked_at else manifest.shape_guards

    def why_not(args: Sequence[Any]) -> str | None:
        return why_not_admitted(manifest.inputs, shape_guards, args)

    plans = tuple(each.plan for each in manifest.inputs)
    dump = dump_for(name, options.dump_dir)
    return CaptureProgram.build(
        name,
        gm,
        plans,
        manifest.device,
        dump,
        fixed_offsets=_fixed_offsets(manifest),
        why_not_admitted=why_not,
    )


def _check_streams(gm: GraphModule, options: Options, name: str) -> None:
    """Its events must order what the streams of the graph share, as they did when it was written."""
    try:
        check_events(gm.graph)
    except StreamError as error:
        raise CacheError(str(error)) from error
    if options.stream_check == "warn":
        check_streams(gm, options.stream_check, name)
    races = races_in(gm.graph) if options.stream_check in ("fix", "error") else []
    if races:
        raise CacheError(f"{races[0]}, and nothing orders the two")


def _check_groups(gm: GraphModule, manifest: Manifest) -> None:
    """The groups that it communicates in are compared by their ranks, so each must be known."""
    for group in map(str, groups_of(gm.graph)):
        if group not in manifest.process.groups:
            raise CacheError(f"it communicates in a group {group!r} whose ranks are not in the file")


def _check_roles(gm: GraphModule, manifest: Manifest) -> None:
    """What the graph writes of its inputs must be said to be written, for the others are copied."""
    reached: dict[Node, CachedInput] = dict(zip(gm.graph.find_nodes(op="placeholder"), manifest.inputs, strict=True))
    for node in gm.graph.nodes:
        for source in written_nodes(node):
            each = reached.get(source)
            if each is not None and each.plan.role is not InputRole.MUTATED:
                raise CacheError(f"{node.name} writes {each.plan.source}, which is said to be {each.plan.role.value}")
        if is_view(node) and node.args[0] in reached:
            reached[node] = reached[node.args[0]]
    for each in manifest.inputs:
        if each.is_tensor is (each.plan.role is InputRole.SCALAR):
            raise CacheError(f"{each.plan.source} is said to be {each.plan.role.value}")


def _fixed_offsets(manifest: Manifest) -> frozenset[int]:
    """The inputs whose offset is also a size, or computed from sizes: the graph may have the one for the other."""
    every = (*manifest.inputs, *manifest.looked_at)
    texts = [str(size) for each in every for size in (*each.shape, *each.stride, each.offset, each.symbol)]
    names = Counter(name for text in (*texts, *manifest.shape_guards) for name in re.findall(r"[A-Za-z_]\w*", text))
    return frozenset(
        each.plan.index for each in manifest.inputs if isinstance(each.offset, str) and names[each.offset] != 1
    )


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    place = (tensor.stride(), tensor.storage_offset(), tensor.is_conj(), tensor.is_neg())
    return (tensor.shape, tensor.dtype, tensor.device, *place)
