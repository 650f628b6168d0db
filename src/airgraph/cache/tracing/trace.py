"""Traces a function once by Dynamo, without executing it, and writes down all that a call needs.

Method: the backend (`collector`) answers the one call that Dynamo makes with objects of its own (`Leaf`), which show
where outputs go in what the function returns, and in attributes that it writes; these are set back.
"""

from __future__ import annotations

import inspect
import random
import sys
import threading
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from airgraph.cache.checking.admission import why_not_admitted
from airgraph.cache.checking.called_by_torch import sources_of_callables
from airgraph.cache.checking.module_sources import depends_on_hashes, sources_of
from airgraph.cache.checking.scope import Reader, Roots
from airgraph.cache.format.fingerprint import Fingerprint
from airgraph.cache.format.graph import graph_to
from airgraph.cache.format.guards import CONSTANTS, Equals
from airgraph.cache.format.manifest import Manifest, Write
from airgraph.cache.format.process import Process
from airgraph.cache.format.result_spec import Structures
from airgraph.cache.format.source_path import parse
from airgraph.cache.format.torch_settings import State
from airgraph.cache.tracing.collector import Collector
from airgraph.cache.tracing.dynamo_guards import absence_of, apart_from_changed, distinct_of, guards_of, modules_of
from airgraph.cache.tracing.inputs import cached_inputs, looked_at, read_input
from airgraph.cache.tracing.observation import Observation, looks_at_hashes
from airgraph.cache.tracing.open_floats import (
    FloatInputs,
    floats_as_inputs,
)
from airgraph.cache.tracing.sizes import check_numbers, shape_guards
from airgraph.errors import CacheError, UnsupportedGraph, Unwritable
from airgraph.memory.locks import renew_after_fork
from airgraph.options import Options
from airgraph.passes.pattern_fusion import registered_functions
from airgraph.program.code_identity import at_once, digest_of_code, goes_by_version
from airgraph.program.collectives import groups_of
from airgraph.program.program import CaptureProgram
from airgraph.program.source_lines import of_trace
from airgraph.runtime.registry import runtime_for
from airgraph.torch_internals import dynamo
from airgraph.torch_internals.dynamo_texts import reason_and_trace
from airgraph.torch_internals.symbolic_shapes import each_size_for_itself

__all__ = ["Executed", "TraceRequest", "full_name", "short_name", "trace"]

_one_at_a_time = threading.RLock()
renew_after_fork(sys.modules[__name__], "_one_at_a_time")


class Executed(CacheError):
    """Dynamo passed the function over and ran it instead; `result` is what it returned."""

    def __init__(self, result: Any) -> None:
        self.result = result
        super().__init__("torch.compile does not trace it")


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """A call that is to be traced, and under what. varied: paths of floats that were others at earlier calls."""

    function: Callable[..., Any]
    arguments: inspect.BoundArguments
    options: Options
    dynamic: bool | None
    decompositions: Mapping[Any, Callable[..., Any]] | None
    fingerprint: Fingerprint
    varied: Collection[str] = ()


def trace(request: TraceRequest) -> Manifest:
    """The graph of one call of a function with these arguments, of which nothing is executed.

    Raises CacheError, with the reason, where it cannot be written down, Executed where it was run instead; OptionError
    and PassError as compiling does.
    """
    if dynamo.is_switched_off():
        raise Unwritable("torch.compile is switched off")
    given = request.arguments.arguments
    read = Roots.of(request.function).at(tuple(given.values()))
    floats = FloatInputs(read, request.varied, set(given) if request.dynamic else set())
    with _random_as_it_was():
        try:
            return _traced(request, read, None if request.dynamic is False else floats)
        except Executed:
            raise
        except CacheError:
            if not floats.found:
                raise
            # They do more than feed tensors.
            return _traced(request, read, None)


@contextmanager
def _as_the_cache_needs() -> Iterator[None]:
    """Dynamo traces otherwise within than for torch.compile."""
    with each_size_for_itself(), dynamo.shapes_by_their_sizes(), dynamo.guards_on_what_is_one():
        yield


@contextmanager
def _random_as_it_was() -> Iterator[None]:
    """Dynamo draws the numbers that a function draws, and nothing is to be executed."""
    drawn = random.getstate()
    try:
        yield
    except Executed:
        raise
    except BaseException:
        random.setstate(drawn)
        raise
    random.setstate(drawn)


@contextmanager
def _current_stream_as_it_was(is_run: Callable[[], bool]) -> Iterator[None]:
    """Dynamo makes the streams current that a function does, and nothing is to be executed.

    is_run: whether the function was run instead of being traced.
    """
    device = torch.accelerator.current_accelerator()
    if device is None or not torch.get_device_module(device).is_initialized():
        yield
        return
    before = torch.accelerator.current_stream()
    try:
        yield
    except BaseException:
        torch.accelerator.set_stream(before)
        raise
    if not is_run():
        torch.accelerator.set_stream(before)


def _traced(request: TraceRequest, read: Reader, floats: FloatInputs | None) -> Manifest:
    function, arguments = request.function, request.arguments
    inner = getattr(function, "__func__", function)
    kinds = {name: each.kind for name, each in arguments.signature.parameters.items()}
    keywords = next((name for name, kind in kinds.items() if kind is inspect.Parameter.VAR_KEYWORD), None)
    collector = Collector(request.options, request.decompositions, read, keywords)
    observed = Observation()
    observed.add_inlined(inner.__code__, inner.__globals__)
    compiled = torch.compile(
        _fresh(function),
        backend=collector,
        fullgraph=True,
        dynamic=request.dynamic,
        options={"guard_filter_fn": collector.take_guards},
    )
    settings = dynamo.settings(replay_side_effects=True)
    is_input = (lambda text: False) if floats is None else floats.is_input
    try:
        # One function at a time, as Dynamo does it.
        with _one_at_a_time, torch.no_grad(), settings, floats_as_inputs(is_input), at_once(), collector.set_back:
            try:
                with (
                    _current_stream_as_it_was(lambda: not collector.was_asked),
                    _as_the_cache_needs(),
                    observed.observer,
                ):
                    result = compiled(*arguments.args, **arguments.kwargs)
                    collector.take_written()
            except Exception as error:
                # Dynamo raises anything, ours and the function's own included, wrapped or not.
                reason = f"tracing failed: {_in_one_line(error)}"
                raise collector.failure or Unwritable(reason) from error
        if collector.failure is not None:
            raise collector.failure
        if not collector.was_asked:
            raise Executed(result)
        if observed.obstacle is not None:
            raise observed.obstacle
        if collector.program is None:
            raise Unwritable("it computes nothing with tensors, so there is no graph")
        _check_device(collector.program.device)
        return _manifest(request, collector, collector.program, result, read, observed)
    finally:
        # Dynamo keeps backends, and this one would keep the model.
        collector.forget()


def _check_device(device: torch.device) -> None:
    """Raises Unwritable where nothing can be captured on it, now and here."""
    if device.type == "meta":
        raise Unwritable("its tensors lie on meta, where they have no values")
    try:
        runtime_for(device.type)
    except UnsupportedGraph as error:
        raise Unwritable(f"it cannot be captured: {error}") from error


def _manifest(
    request: TraceRequest,
    collected: Collector,
    program: CaptureProgram,
    result: Any,
    read: Reader,
    observed: Observation,
) -> Manifest:
    inputs = cached_inputs(program, collected.sources, read)
    others = looked_at(collected, {each.path.text for each in inputs}, read)
    every = (*inputs, *others)
    guards_on_sizes = shape_guards(collected.shape_env, every)
    values = [read_input(each, read) for each in every]
    state = State.now(program.device)
    if (reason := state.why_unwritable) is not None:
        raise Unwritable(reason)
    reason = why_not_admitted(every, guards_on_sizes, values)
    if reason is not None:
        raise Unwritable(f"its graph is not right for the arguments it was traced with: {reason}")
    check_numbers(collected.leaves, collected.shape_env)
    paths = _paths(collected.returned)
    structures = Structures(paths)
    structure = structures.of(result)
    writes = [
        Write(change.owner, change.step, structures.of(value))
        for change, value in zip(collected.changes.writes, collected.written, strict=True)
    ]
    # What is returned as it came is not guarded by Dynamo, and stands in the structure as it is now.
    constants = [Equals(parse(text), value) for text, value in collected.returned.items() if type(value) in CONSTANTS]
    guarded = (*guards_of(collected.guards, read), *collected.changes.guards)
    absent = [*(absence_of(guarded, read) if observed.asks_for_absence else []), *observed.missing.guards(read)]
    apart = apart_from_changed(guarded, collected.changes.owners, read)
    guards = (*guarded, *constants, *absent, *distinct_of(guarded, Roots.of(request.function), read), *apart)
    used, namespace = observed.used(), Roots.of(request.function).function_globals
    by_hashes = any(map(looks_at_hashes, used)) or depends_on_hashes(used, namespace)
    options = request.options
    compared = (
        options.post_grad_custom_pre_pass,
        options.post_grad_custom_post_pass,
        *registered_functions(),
        dict(request.decompositions or {}),
    )
    callables = sources_of_callables(observed.called_by_torch(), used, namespace, compared)
    return Manifest(
        function=full_name(request.function),
        fingerprint=request.fingerprint,
        sources=(*sources_of(used, modules_of(guards, read), namespace), *callables),
        process=Process.now(
            observed.environment, depends_on_hashes=by_hashes, groups=map(str, groups_of(program.gm.graph))
        ),
        device=program.device,
        state=state,
        inputs=inputs,
        looked_at=others,
        guards=guards,
        shape_guards=guards_on_sizes,
        graph=graph_to(program.gm),
        structure=structure,
        writes=tuple(writes),
        codes=frozenset(digest_of_code(each.code) for each in used),
    )


def full_name(function: Callable[..., Any]) -> str:
    """`module.Class.method`, of the class that a method is called on."""
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", type(function).__name__)
    if owner is not None:
        return f"{type(owner).__module__}.{type(owner).__qualname__}.{name}"
    return f"{function.__module__}.{getattr(function, '__qualname__', name)}"


def short_name(function: Callable[..., Any]) -> str:
    """`Class.method`, or the name of a function, as graphs are called in the report."""
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", type(function).__name__)
    return name if owner is None else f"{type(owner).__name__}.{name}"


def _fresh(function: Any) -> Any:
    """The function with code of its own, so that what Dynamo keeps about it goes with it."""
    inner = getattr(function, "__func__", function)
    code = inner.__code__.replace()
    if goes_by_version(inner.__globals__.get("__name__")):
        # Dynamo does not begin within PyTorch's own files.
        code = code.replace(co_filename=__file__)
    copy = types.FunctionType(code, inner.__globals__, inner.__name__, inner.__defaults__, inner.__closure__)
    copy.__kwdefaults__ = inner.__kwdefaults__
    copy.__qualname__, copy.__module__ = inner.__qualname__, inner.__module__
    return types.MethodType(copy, function.__self__) if inner is not function else copy


def _paths(returned: Mapping[str, Any]) -> dict[int, str]:
    """Where objects that a function returns come from, by `id`; an empty tuple is the same wherever it comes from."""
    return {id(value): text for text, value in returned.items() if value != () or type(value) is not tuple}


def _in_one_line(error: BaseException) -> str:
    """What failed, and the line of the user's code where it did."""
    reason, trace = reason_and_trace(str(error))
    line = of_trace(trace)
    return f"{type(error).__name__}: {reason.rstrip('.')}" + (f", at {line}" if line else "")
