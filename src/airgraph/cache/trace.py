"""Traces a function once by Dynamo, without executing it, and writes down all that a call needs.

Method: the backend keeps the graph, and answers the one call that Dynamo makes with objects of its own (`Leaf`), which
show where outputs go in what the function returns, and in attributes that it writes; these are set back.
"""

from __future__ import annotations

import inspect
import random
import re
import sys
import threading
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule

from airgraph.cache.admission import why_not_admitted
from airgraph.cache.conditions import CONSTANTS, Condition, Read, conditions_of, modules_of
from airgraph.cache.graph_format import Unwritable, graph_to
from airgraph.cache.manifest import CachedInput, Manifest, Traits, Write, lazy_of
from airgraph.cache.module_sources import sources_of
from airgraph.cache.numbers import without_numbers
from airgraph.cache.observation import Observation
from airgraph.cache.open_floats import (
    FloatInputs,
    floats_as_inputs,
    is_float,
    is_safe_with_any_float,
    without_conversion,
)
from airgraph.cache.process import Process
from airgraph.cache.returned import returned_objects
from airgraph.cache.roots import Reader, Roots
from airgraph.cache.shape_condition import UnsupportedExpression, evaluate, symbols
from airgraph.cache.side_effects import Changes, changes_of
from airgraph.cache.source_path import Item, name_of_source, parse, resolve
from airgraph.cache.state import State
from airgraph.cache.structure import Leaf, NumberLeaf, Structures
from airgraph.capture.preparation import prepare
from airgraph.errors import AirgraphError, CacheError, UnsupportedGraph
from airgraph.memory.locks import renew_after_fork
from airgraph.options import Options
from airgraph.program import lowering
from airgraph.program.code_identity import at_once, digest_of_code, goes_by_version
from airgraph.program.inputs import InputPlan, InputRole
from airgraph.program.program import CaptureProgram
from airgraph.program.support import check_capturable
from airgraph.runtime.cpu.engine import engine

__all__ = ["Executed", "full_name", "trace"]

_one_at_a_time = threading.RLock()
renew_after_fork(sys.modules[__name__], "_one_at_a_time")


class Executed(CacheError):
    """Dynamo passed the function over and ran it instead; `result` is what it returned."""

    def __init__(self, result: Any) -> None:
        self.result = result
        super().__init__("torch.compile does not trace it")


def trace(
    function: Callable[..., Any],
    arguments: inspect.BoundArguments,
    options: Options,
    *,
    dynamic: bool | None,
    decompositions: Mapping[Any, Callable[..., Any]] | None,
    fingerprint: str,
    versions: Mapping[str, str],
    varied: Collection[str] = (),
) -> Manifest:
    """The graph of one call of a function with these arguments, of which nothing is executed.

    varied: paths of floats that were others at earlier calls. Raises CacheError, with the reason, where it cannot be
    written down, Executed where it was run instead; OptionError and PassError as compiling does.
    """
    if _is_switched_off():
        raise Unwritable("torch.compile is switched off")
    read = Roots.of(function).at(tuple(arguments.arguments.values()))
    floats = FloatInputs(read, varied, set(arguments.arguments) if dynamic else set())

    def once(floats: FloatInputs | None) -> Manifest:
        return _traced(function, arguments, options, dynamic, decompositions, fingerprint, versions, read, floats)

    with _random_as_it_was():
        try:
            return once(None if dynamic is False else floats)
        except Executed:
            raise
        except CacheError:
            if not floats.found:
                raise
            # They do more than feed tensors.
            return once(None)


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


def _traced(
    function: Callable[..., Any],
    arguments: inspect.BoundArguments,
    options: Options,
    dynamic: bool | None,
    decompositions: Mapping[Any, Callable[..., Any]] | None,
    fingerprint: str,
    versions: Mapping[str, str],
    read: Reader,
    floats: FloatInputs | None,
) -> Manifest:
    inner = getattr(function, "__func__", function)
    collector = _Collector(options, decompositions, read)
    observed = Observation()
    observed.add_inlined(inner.__code__, inner.__globals__)
    compiled = torch.compile(
        _fresh(function),
        backend=collector,
        fullgraph=True,
        dynamic=dynamic,
        options={"guard_filter_fn": collector.take_guards},
    )
    settings = torch._dynamo.config.patch(replay_side_effects=True)
    is_input = (lambda text: False) if floats is None else floats.is_input
    try:
        # One function at a time, as Dynamo does it.
        with _one_at_a_time, torch.no_grad(), settings, floats_as_inputs(is_input), at_once(), collector.set_back:
            try:
                with observed.observer:
                    result = compiled(*arguments.args, **arguments.kwargs)
                    collector.take_written()
            except Exception as error:
                # Dynamo raises anything, ours and the function's own included, wrapped or not.
                reason = f"tracing failed: {type(error).__name__}: {_first_line(error)}"
                raise collector.failure or Unwritable(reason) from error
        if collector.failure is not None:
            raise collector.failure
        if not collector.was_asked:
            raise Executed(result)
        if observed.obstacle is not None:
            raise observed.obstacle
        if collector.program is None:
            raise Unwritable("it computes nothing with tensors, so there is no graph")
        return _manifest(function, collector, collector.program, result, read, observed, fingerprint, versions)
    finally:
        # Dynamo keeps backends, and this one would keep the model.
        collector.forget()


def _is_switched_off() -> bool:
    from torch._dynamo import config, eval_frame

    stance = getattr(getattr(eval_frame, "_stance", None), "stance", "default")
    return bool(config.disable) or stance != "default"


class _Collector:
    """A backend that keeps what it is given."""

    def __init__(self, options: Options, decompositions: Mapping[Any, Callable[..., Any]] | None, read: Reader) -> None:
        self._options = options
        self._decompositions = decompositions
        self._read: Reader | None = read
        # Whether Dynamo traced at all.
        self.was_asked = False
        self.guards: list[Any] = []
        self.program: CaptureProgram | None = None
        self.sources: list[lowering.InputSource] = []
        self.shape_env: Any = None
        self.tracked: list[tuple[str, Any]] = []
        self.changes = Changes()
        # What was written of them.
        self.written: list[Any] = []
        self.set_back = engine().SetBack()
        self.leaves: list[Leaf | NumberLeaf] = []
        self.returned: dict[str, Any] = {}
        self.failure: AirgraphError | None = None

    def forget(self) -> None:
        """Let go of all that was collected."""
        self.guards.clear()
        self.sources, self.tracked, self.returned = [], [], {}
        self.changes, self.written = Changes(), []
        self.program = self.shape_env = self._read = None

    def take_guards(self, guards: Sequence[Any]) -> list[bool]:
        self.was_asked = True
        self.guards += guards
        if self.program is None and self.failure is None:
            # Nothing asked for a graph, and Dynamo would go on and change objects.
            self.failure = Unwritable("it computes nothing with tensors, so there is no graph")
            raise self.failure
        return [False] * len(guards)

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
        from torch._dynamo.symbolic_convert import InstructionTranslator

        self.was_asked = True
        self.sources = lowering.input_sources(gm)
        try:
            tx, read = InstructionTranslator.current_tx(), self._read
            assert read is not None
            self.changes = changes_of(tx, read)
            self.returned = returned_objects(tx, [each.value for each in self.changes.writes], read)
            lowering.lower(
                gm,
                example_inputs,
                compile_inference=lambda lowered, inputs: self._take(gm, lowered, inputs),
                compile_training=self._refuse_training,
                decompositions=self._decompositions,
            )
        except AirgraphError as error:
            self.failure = error
        for change in self.changes.writes:
            self.set_back.keep(change.object, change.attribute)
        return self._answer

    def _answer(self, *args: Any) -> list[Leaf | NumberLeaf]:
        """In place of the graph."""
        if self.failure is not None:
            raise self.failure
        return self.leaves

    def take_written(self) -> None:
        """Read what Dynamo has written, before it is set back."""
        self.written = [getattr(each.object, each.attribute) for each in self.changes.writes]

    def _take(self, gm: GraphModule, lowered: GraphModule, inputs: Sequence[Any]) -> Any:
        from torch._functorch._aot_autograd.utils import make_boxed_func

        context: Any = torch._guards.TracingContext.get()
        self.shape_env = context.fake_mode.shape_env
        tracked = getattr(self.shape_env, "tracked_fakes", None) or []
        self.tracked = [(name_of_source(each.source), each.fake) for each in tracked]
        if not lowering.hands_through(gm, lowered, marks_outputs=False):
            raise Unwritable(
                "AOTAutograd does something around its graph at every call: an output is a view of an argument, "
                "arguments share memory, or an argument is a tensor subclass"
            )
        assert self._read is not None
        nodes = zip(lowered.graph.find_nodes(op="placeholder"), self.sources, strict=True)
        floats = {node for node, source in nodes if is_float(source.path, self._read)}
        if not is_safe_with_any_float(lowered, floats):
            raise Unwritable("it computes with a float before a tensor takes part")
        reduced = without_numbers(lowered)
        self.leaves = reduced.leaves
        inputs = [inputs[position] for position in reduced.positions]
        self.program = prepare(lowered, self.sources, self._options, inputs, reduced.positions)
        self.sources = [self.sources[position] for position in reduced.positions]
        try:
            check_capturable(lowered, self.program.device)
        except UnsupportedGraph as error:
            raise Unwritable(f"it cannot be captured: {error}") from error
        return make_boxed_func(lowered.forward)

    def _refuse_training(self, lowered: GraphModule, inputs: Sequence[Any]) -> Any:
        raise Unwritable("gradients are needed")


def _manifest(
    function: Callable[..., Any],
    collected: _Collector,
    program: CaptureProgram,
    result: Any,
    read: Reader,
    observed: Observation,
    fingerprint: str,
    versions: Mapping[str, str],
) -> Manifest:
    inputs = _inputs(program, collected.sources, read)
    looked_at = _looked_at(collected, {each.path.text for each in inputs}, read)
    every = (*inputs, *looked_at)
    shape_conditions = _shape_conditions(collected.shape_env, every)
    values = [_read_input(each, read) for each in every]
    state = State.now(program.device.type)
    if state.foreign_modes:
        raise Unwritable(f"it was called under {', '.join(state.foreign_modes)}")
    reason = why_not_admitted(every, shape_conditions, values)
    if reason is not None:
        raise Unwritable(f"its graph is not right for the arguments it was traced with: {reason}")
    _check_numbers(collected.leaves, collected.shape_env)
    paths = _paths(collected.returned)
    structures = Structures(paths)
    structure = structures.of(result)
    writes = [
        Write(change.owner, change.attribute, structures.of(value))
        for change, value in zip(collected.changes.writes, collected.written, strict=True)
    ]
    # What is returned as it came is not guarded by Dynamo, and stands in the structure as it is now.
    constants = [
        Condition("equals", parse(text), value)
        for text, value in collected.returned.items()
        if type(value) in CONSTANTS
    ]
    conditions = (*conditions_of(collected.guards, read), *collected.changes.conditions, *constants)
    return Manifest(
        function=full_name(function),
        fingerprint=fingerprint,
        versions=versions,
        sources=sources_of(observed.used(), modules_of(conditions, read), Roots.of(function).function_globals),
        process=Process.now(observed.environment, depends_on_hashes=observed.depends_on_hashes),
        device=program.device,
        state=state,
        inputs=inputs,
        looked_at=looked_at,
        conditions=conditions,
        shape_conditions=shape_conditions,
        graph=graph_to(program.gm),
        structure=structure,
        writes=tuple(writes),
        codes=frozenset(digest_of_code(each.code) for each in observed.used() if not each.is_foreign),
    )


def full_name(function: Callable[..., Any]) -> str:
    """`module.Class.method`, of the class that a method is called on."""
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", type(function).__name__)
    if owner is not None:
        return f"{type(owner).__module__}.{type(owner).__qualname__}.{name}"
    return f"{function.__module__}.{getattr(function, '__qualname__', name)}"


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


def _inputs(program: CaptureProgram, sources: Sequence[lowering.InputSource], read: Read) -> tuple[CachedInput, ...]:
    nodes = program.gm.graph.find_nodes(op="placeholder")
    return tuple(
        _cached_input(plan, source.path, node.meta["val"], read)
        for plan, node, source in zip(program.inputs, nodes, sources, strict=True)
    )


def _cached_input(plan: InputPlan, text: str, value: Any, read: Read) -> CachedInput:
    path = resolve(without_conversion(text), read)
    if path.is_global:
        raise Unwritable(f"{plan.source} is a tensor or number outside the function's arguments")
    for length, step in enumerate(path.steps):
        owner = read(replace(path, steps=path.steps[:length]))
        if isinstance(step, Item) and isinstance(owner, dict) and type(owner).__getitem__ is not dict.__getitem__:
            raise Unwritable(f"{plan.source} is in a {type(owner).__name__}, which looks up its items in its own way")
    if type(read(path)) is float:
        if isinstance(value, torch.SymFloat):
            raise Unwritable(f"{path.text} decides more than what tensors are computed with")
        return CachedInput.of_float(replace(plan, source=path.text), path)
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        shape, stride = tuple(map(_size, value.shape)), tuple(map(_size, value.stride()))
        offset = _size(value.storage_offset())
        return CachedInput(
            plan, path, value.dtype, value.device, shape, stride, offset, lazy_of(value), traits=Traits.of(read(path))
        )
    if isinstance(value, (int, torch.SymInt)):
        return CachedInput(plan, path, symbol=_size(value))
    raise Unwritable(f"{plan.source} is a {type(value).__name__}")


def _size(size: Any) -> int | str:
    return size if isinstance(size, int) else str(size.node.expr)


def _read_input(each: CachedInput, read: Read) -> Any:
    try:
        value = read(each.path)
    except (LookupError, AttributeError, TypeError) as error:
        raise Unwritable(f"{each.path.text} cannot be read again: {error}") from error
    return torch.tensor(value, dtype=each.dtype) if each.is_float else value


def _shape_conditions(shape_env: Any, inputs: Sequence[CachedInput]) -> tuple[str, ...]:
    """What tracing assumed about symbols, as expressions over those of the inputs."""
    if shape_env is None:
        return ()
    known = {size for each in inputs for size in (*each.shape, *each.stride, each.symbol) if isinstance(size, str)}
    names = {name for name in known if name.isidentifier()}
    # Symbols that were found to be equal are one by now, in the sizes of inputs too.
    guards = [text for text in (str(shape_env.replace(guard.expr)) for guard in shape_env.guards) if text != "True"]
    found: list[str] = []
    # First, since others may divide by a size.
    for symbol, span in shape_env.var_to_range.items():
        if str(symbol) in names:
            found += [f"{symbol} >= {span.lower}"] if _is_finite(span.lower) else []
            found += [f"{symbol} <= {span.upper}"] if _is_finite(span.upper) else []
    found += guards
    unknown = set().union(*map(symbols, found)) - names if found else set()
    if unknown:
        raise Unwritable(f"it depends on sizes of tensors that it does not compute with: {', '.join(sorted(unknown))}")
    hints = {str(symbol): int(value) for symbol, value in _hints(shape_env).items() if str(symbol) in names}
    for text in found:
        if names <= hints.keys() and not evaluate(text, hints):
            raise Unwritable(f"the condition {text} on sizes does not hold after tracing")
    return tuple(dict.fromkeys(found))


def _check_numbers(leaves: Iterable[Leaf | NumberLeaf], shape_env: Any) -> None:
    """Raises Unwritable for a number that a call could not work out."""
    hints = {str(symbol): int(value) for symbol, value in _hints(shape_env).items()} if shape_env is not None else {}
    for leaf in leaves:
        if isinstance(leaf, NumberLeaf):
            try:
                now = evaluate(leaf.text, hints)
            except UnsupportedExpression as error:
                raise Unwritable(f"the result holds a number that is not worked out from sizes: {error}") from error
            if type(now) is not int or leaf.now not in (None, now):
                raise Unwritable(f"the result holds a number, {leaf.text}, which is {leaf.now}, not {now}")


def _hints(shape_env: Any) -> Mapping[Any, Any]:
    # Renamed in torch 2.11, and deprecated under the old name.
    return shape_env.backed_var_to_val if hasattr(shape_env, "backed_var_to_val") else shape_env.var_to_val


def _is_finite(bound: Any) -> bool:
    return bool(getattr(bound, "is_Integer", False)) and abs(int(bound)) < 2**62


def _looked_at(collected: _Collector, inputs: set[str], read: Read) -> tuple[CachedInput, ...]:
    """Tensors and numbers that Dynamo wrapped, but that are no inputs of the graph: their sizes may have decided."""
    made: dict[str, CachedInput] = {}
    in_guards = {str(symbol) for guard in collected.shape_env.guards for symbol in guard.expr.free_symbols}
    for text, fake in collected.tracked:
        if text.endswith(".item()"):
            if isinstance(_size(fake), int) or str(fake.node._expr) in in_guards:
                raise Unwritable(f"it depends on the value {text}")
        # The tensor that an argument is a view of decides nothing.
        elif without_conversion(text) not in inputs and text not in made and not re.search(r"\._base\b", text):
            role = InputRole.USER if isinstance(fake, torch.Tensor) else InputRole.SCALAR
            made[text] = _cached_input(InputPlan(len(made), role, text), text, fake, read)
    return tuple(made.values())


def _paths(returned: Mapping[str, Any]) -> dict[int, str]:
    """Where objects that a function returns come from, by `id`; an empty tuple is the same wherever it comes from."""
    return {id(value): text for text, value in returned.items() if value != () or type(value) is not tuple}


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else ""
