"""torch.compile's entry: from Dynamo's graph to a callable that replays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from torch.fx import GraphModule

from airgraph import arguments
from airgraph.capture.callable import GraphedCallable
from airgraph.capture.ledger import GraphRecord, ledger
from airgraph.capture.preparation import prepare
from airgraph.errors import AirgraphError, NotAdmitted, OptionError, PassError, StreamError, UnsupportedGraph
from airgraph.options import Options, OptionsSource
from airgraph.program import lowering
from airgraph.program.run_as_traced import call_on_streams, why_it_runs_as_it_is
from airgraph.program.tensor_parts import take_apart
from airgraph.runtime.registry import runtime_for
from airgraph.torch_internals import aot, dynamo
from airgraph.user_warning import warn_user

__all__ = ["airgraph", "get_backend", "get_compiler", "raising"]

_training_warned = itertools.count()
_TRAINING = "gradients are needed, and training graphs are not captured yet. Use torch.no_grad() for inference"


def get_backend(
    options: Options | OptionsSource | Mapping[str, Any] | None = None,
    *,
    custom_decompositions: Mapping[Any, Callable[..., Any]] | None = None,
) -> Callable[..., Any]:
    """A backend for `torch.compile(model, backend=...)` with these options.

    custom_decompositions: operators to functions, applied when lowering to ATen.
    Raises OptionError for unknown names, with close matches, for bad values, and for decompositions of another kind.
    """
    parsed = Options.parse(options)
    decompositions = arguments.decompositions("custom_decompositions", custom_decompositions)

    def backend(gm: GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
        if kwargs.get("options"):
            raise OptionError("options were given twice: to get_backend and to torch.compile. Give them once.")
        return _compile(gm, example_inputs, parsed, decompositions)

    return backend


def get_compiler(
    options: Options | OptionsSource | Mapping[str, Any] | None = None,
) -> Callable[[GraphModule, Sequence[Any]], Any]:
    """What captures graphs that a backend of your own has lowered, by `aot_module_simplified(..., fw_compiler=...)`.

    The graph may be changed. Graphs of training run uncaptured. Messages call arguments as the lowered graph does:
    AOTAutograd does not hand on what the user calls them, nor which are parameters, so that the addresses of all are
    checked. Raises OptionError for bad options, and at the call where no backend of torch.compile is at work.
    """
    parsed = Options.parse(options)

    def compiler(gm: GraphModule, example_inputs: Sequence[Any]) -> Any:
        kind = aot.graph_being_compiled()
        if kind is None or (kind == "inference" and not aot.knows_lowered_graph()):
            raise OptionError(
                "get_compiler: expected to be called by AOTAutograd within a backend of torch.compile, and is not. "
                "Give it to aot_module_simplified as fw_compiler, or use get_backend."
            )
        name = ledger.next_name(dynamo.traced_function())
        if kind != "inference":
            return _uncaptured(gm, name, _TRAINING, warn=next(_training_warned) == 0)
        as_lowered = GraphModule(gm, deepcopy(gm.graph))
        lowering.finish(gm)
        return _graphed(gm, (), parsed, example_inputs, name, as_lowered.forward)

    return compiler


def airgraph(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | Options | None = None,
) -> Callable[..., Any]:
    """The backend registered with torch as "airgraph". The first call raises OptionError."""
    try:
        if mode is not None:
            raise OptionError(f"mode={mode!r}: airgraph has no modes. Use options={{...}}; see airgraph.Options.")
        parsed = Options.parse(options)
    except OptionError as error:
        return raising(error)
    return _compile(gm, example_inputs, parsed)


def _compile(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    options: Options,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
) -> Callable[..., Any]:
    as_it_is = why_it_runs_as_it_is(gm.graph)
    if as_it_is is not None:
        return _eagerly(call_on_streams(gm), ledger.next_name(dynamo.traced_function()), as_it_is)
    apart = take_apart(gm, example_inputs)
    if apart is not None:
        compiled = _compile_plain(apart.gm, apart.example_inputs, options, decompositions)
        if apart.stays_as_it_is():
            return apart.taken_by(compiled)
    return _compile_plain(gm, example_inputs, options, decompositions)


def _compile_plain(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    options: Options,
    decompositions: Mapping[Any, Callable[..., Any]] | None,
) -> Callable[..., Any]:
    sources = lowering.input_sources(gm)
    function = dynamo.traced_function()
    direct: list[GraphedCallable] = []

    def compile_inference(lowered: GraphModule, inputs: Sequence[Any]) -> Any:
        hands_through = lowering.hands_through(gm, lowered)
        # Arguments and results of the two are the same only where nothing is between them.
        uncaptured = gm.forward if hands_through else None
        graphed = _graphed(lowered, sources, options, inputs, ledger.next_name(function), uncaptured)
        if hands_through and isinstance(graphed, GraphedCallable):
            direct.append(graphed)
        return graphed

    def compile_training(lowered: GraphModule, inputs: Sequence[Any]) -> Any:
        return _uncaptured(lowered, ledger.next_name(function), _TRAINING, warn=next(_training_warned) == 0)

    try:
        lowered = lowering.lower(
            gm,
            example_inputs,
            compile_inference=compile_inference,
            compile_training=compile_training,
            decompositions=decompositions,
        )
    except (OptionError, PassError, StreamError) as error:
        return raising(error)
    # AOTAutograd's wrappers cost some microseconds a call.
    return direct[0].call if direct else _or_as_traced(lowered, gm)


def _graphed(
    lowered: GraphModule,
    sources: Sequence[lowering.InputSource],
    options: Options,
    inputs: Sequence[Any],
    name: str,
    uncaptured: Callable[..., Any] | None,
) -> Any:
    """A callable that replays a lowered graph, or runs it where its device has no runtime.

    uncaptured: what to call with arguments that the graph is not right for.
    """
    program = prepare(lowered, sources, options, inputs, name=name)
    try:
        runtime = runtime_for(program.device.type)
    except UnsupportedGraph as error:
        return _uncaptured(lowered, program.name, f"{error}. `airgraph doctor` says which devices can be used")
    return GraphedCallable(program, runtime, options, uncaptured)


def _or_as_traced(lowered: Callable[..., Any], gm: GraphModule) -> Callable[..., Any]:
    """Calls what a graph was lowered to, or the graph itself for arguments that the former is not right for."""

    def call(*args: Any) -> Any:
        try:
            return lowered(*args)
        except NotAdmitted as refusal:
            ledger.count("eager_calls")
            warn_user(
                f"a graph runs eagerly where it was traced for other arguments: {refusal}. Results are "
                "right, but not replayed. Pass tensors that share no memory with what is written."
            )
            return gm.forward(*args)

    return call


def raising(error: AirgraphError) -> Callable[..., Any]:
    """In place of a compiled graph: raises at the call, so that the user meets the error itself.

    Dynamo wraps what is raised while it compiles, or runs eagerly where it is told to suppress errors.
    """

    def refuse(*args: Any) -> Any:
        raise error

    return refuse


def _uncaptured(gm: GraphModule, name: str, reason: str, *, warn: bool = True) -> Any:
    return aot.boxed(_eagerly(gm.forward, name, reason, warn=warn))


def _eagerly(call: Callable[..., Any], name: str, reason: str, *, warn: bool = True) -> Callable[..., Any]:
    ledger.add(GraphRecord(name, "skipped", reason, ""))
    if warn:
        warn_user(f"{name} runs uncaptured: {reason}.")

    def run(*args: Any) -> Any:
        ledger.count("eager_calls")
        return call(*args)

    return run
