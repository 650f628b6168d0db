"""AOTAutograd: lowering a graph of Dynamo's, and what it says of the lowered one."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

__all__ = [
    "Lowered",
    "LoweredOutput",
    "OutputKind",
    "aot_autograd",
    "boxed",
    "forward_and_backward",
    "graph_being_compiled",
    "knows_lowered_graph",
    "lowered",
    "shape_env_of_trace",
]


def aot_autograd(**settings: Any) -> Callable[..., Any]:
    """A backend of Dynamo's that lowers and hands over, see `torch._dynamo.backends.common`.

    What computes with a number that is an argument keeps what is known of it: the scope and the line of the program.
    """
    from torch._dynamo.backends.common import aot_autograd as made

    compiler = made(**settings)

    def compile_keeping_origins(gm: GraphModule, example_inputs: Sequence[Any]) -> Any:
        from torch._functorch._aot_autograd import graph_compile

        module: Any = graph_compile
        own = module.tensorify_python_scalars
        module.tensorify_python_scalars = _with_origins
        try:
            return compiler(gm, example_inputs)
        finally:
            module.tensorify_python_scalars = own

    return compile_keeping_origins


def _with_origins(gm: GraphModule, shape_env: Any, fake_mode: Any) -> None:
    """As torch has numbers of a program computed by operators; these replace others, of which they know nothing.

    Then torch has Dynamo trace anew, to leave out numbers that no tensor came of. Among them it counts what a float64
    tensor of one number may hold, and what Dynamo leaves out then is the writes to it: that is not done.
    """
    from torch._dynamo.exc import TensorifyScalarRestartAnalysis
    from torch._dynamo.symbolic_convert import TensorifyState
    from torch.fx.passes._tensorify_python_scalars import tensorify_python_scalars

    left_out = TensorifyState.force_specializations
    before = set(left_out)
    try:
        with _replacing_with_origins(gm.graph):
            tensorify_python_scalars(gm, shape_env, fake_mode)
    except TensorifyScalarRestartAnalysis:
        left_out -= _numbers_of_tensors(shape_env)
        if left_out != before:
            raise


@contextmanager
def _replacing_with_origins(graph: Any) -> Iterator[None]:
    """A block in which a node that is made last before another is erased, at one place, is taken for what replaces it.

    GraphModule's own hook of replacements cannot be used: it fails where a number takes a node's place.
    """
    create, insert_before, erase = graph.create_node, graph.inserting_before, graph.erase_node
    made: list[Node] = []

    def note_created(*args: Any, **kwargs: Any) -> Node:
        made[:] = [create(*args, **kwargs)]
        return made[0]

    def note_place(*args: Any) -> Any:
        made.clear()
        return insert_before(*args)

    def keep_origin(node: Node) -> None:
        for new in made:
            new.meta = {**{key: node.meta[key] for key in _ORIGIN if key in node.meta}, **new.meta}
        made.clear()
        erase(node)

    graph.create_node, graph.inserting_before, graph.erase_node = note_created, note_place, keep_origin
    try:
        yield
    finally:
        del graph.create_node, graph.inserting_before, graph.erase_node


def _numbers_of_tensors(shape_env: Any) -> set[str]:
    """Of symbols: those that stand for what `item` would give of a tensor, which is no Python number."""
    from torch._dynamo.source import CallMethodItemSource, FloatTensorSource

    return {
        str(symbol)
        for symbol, sources in shape_env.var_to_sources.items()
        if any(isinstance(each, CallMethodItemSource) and type(each.base) is not FloatTensorSource for each in sources)
    }


# Of a node: where in the program it comes from.
_ORIGIN = ("custom", "stack_trace", "nn_module_stack", "source_fn_stack", "from_node", "seq_nr")


def forward_and_backward(*args: Any, **kwargs: Any) -> Any:
    """Split a graph of training in two, as torch's own backends do.

    AOTAutograd's default refuses operators with side effects, such as events, beside a checkpoint.
    """
    from functorch.compile import min_cut_rematerialization_partition  # type: ignore[import-untyped]

    return min_cut_rematerialization_partition(*args, **kwargs)


def boxed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A callable that takes its arguments as one list, which it may empty."""
    from torch._functorch._aot_autograd.utils import make_boxed_func

    return make_boxed_func(function)


class OutputKind(enum.Enum):
    """How an output of a function relates to what the lowered graph returns and to the arguments."""

    PLAIN = "what the graph returns"
    ARGUMENT = "an argument"
    VIEW_OF_ARGUMENT = "a view of an argument"
    OTHER = "made by AOTAutograd of what the graph returns"


@dataclass(frozen=True, slots=True)
class LoweredOutput:
    """base: the argument that it is, or is a view of."""

    kind: OutputKind
    base: int | None


@dataclass(frozen=True, slots=True)
class Lowered:
    """What AOTAutograd has found out of a graph, and what its wrappers do around it.

    inputs: how many it has. static: of these, the positions of parameters and buffers. mutated: of those that it
    writes. repeated_mutations: how many of the graph's outputs, the first ones, the wrappers copy into arguments.
    outputs: of the function, which follow. orders_effects: whether tokens keep operators with effects in order.
    marks_sizes: whether the wrappers mark outputs whose sizes vary. does_more: whether they do anything else.
    """

    inputs: int
    static: frozenset[int]
    mutated: frozenset[int]
    repeated_mutations: int
    outputs: tuple[LoweredOutput, ...]
    orders_effects: bool
    marks_sizes: bool
    does_more: bool


def lowered() -> Lowered:
    """Of the graph that is lowered. Call inside one of AOTAutograd's compilers."""
    from torch._functorch._aot_autograd.schemas import MutationType, OutputType

    context: Any = torch._guards.TracingContext.get()
    found = context.fw_metadata
    kinds = {
        OutputType.non_alias: OutputKind.PLAIN,
        OutputType.unsafe_view_alias: OutputKind.PLAIN,
        OutputType.custom_function_view: OutputKind.PLAIN,
        OutputType.is_input: OutputKind.ARGUMENT,
        OutputType.alias_of_input: OutputKind.VIEW_OF_ARGUMENT,
    }
    return Lowered(
        len(found.input_info),
        frozenset(found.static_input_indices or ()),
        frozenset(
            position
            for position, each in enumerate(found.input_info)
            if each.mutation_type is not MutationType.NOT_MUTATED
        ),
        found.num_mutated_inp_runtime_indices,
        tuple(
            LoweredOutput(kinds.get(each.output_type, OutputKind.OTHER), each.base_idx) for each in found.output_info
        ),
        bool(found.tokens),
        bool(found.dynamic_outputs),
        bool(
            found.num_intermediate_bases
            or found.grad_enabled_mutation is not None
            or found.num_graphsafe_rng_states
            or found.is_rng_op_functionalized
        ),
    )


def graph_being_compiled() -> str | None:
    """Which graph a compiler of AOTAutograd's is called for: "inference", "forward", "backward" or "joint"; None where
    no compiler is called."""
    from torch._functorch._aot_autograd import logging_utils

    names = logging_utils.graph_being_compiled
    return names[-1].rpartition("_")[2] if names else None


def knows_lowered_graph() -> bool:
    """Whether `lowered` is there: in a compiler of AOTAutograd's within a backend of torch.compile."""
    context: Any = torch._guards.TracingContext.try_get()
    return context is not None and context.fw_metadata is not None


def shape_env_of_trace() -> Any:
    """Of the trace that is on its way."""
    context: Any = torch._guards.TracingContext.get()
    return context.fake_mode.shape_env
