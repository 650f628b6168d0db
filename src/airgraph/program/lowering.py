"""From Dynamo's graph to the program that a capture records."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from airgraph.program.inputs import InputPlan, InputRole
from airgraph.program.regenerated import see_inputs_again
from airgraph.torch_internals import aot
from airgraph.torch_internals.dispatcher import negated_view
from airgraph.torch_internals.dynamo_sources import path_of_node
from airgraph.torch_internals.fake_tensors import FakeTensor, is_traceable_wrapper_subclass
from airgraph.torch_internals.storages import storage_id

__all__ = ["Compiled", "InputSource", "finish", "hands_through", "input_plans", "input_sources", "lower"]

Compiled = Callable[..., Any]


def lower(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    compile_inference: Callable[[GraphModule, Sequence[Any]], Compiled],
    compile_training: Callable[[GraphModule, Sequence[Any]], Compiled],
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
) -> Compiled:
    """Lower to ATen by AOTAutograd, without decompositions but those given, so that eager's own kernels run.

    compile_inference gets the graph when no gradient is needed, input mutations kept in it as `copy_`;
    compile_training gets forward and backward when one is. Both return boxed callables.
    """

    def compile_finished(lowered: GraphModule, inputs: Sequence[Any]) -> Compiled:
        finish(lowered)
        return compile_inference(lowered, inputs)

    compiler = aot.aot_autograd(
        fw_compiler=compile_training,
        bw_compiler=compile_training,
        inference_compiler=compile_finished,
        partition_fn=aot.forward_and_backward,
        keep_inference_input_mutations=True,
        decompositions=dict(decompositions or {}),
    )
    return compiler(gm, _apart(gm, example_inputs))


def finish(lowered: GraphModule) -> None:
    """Put right what AOTAutograd leaves in a graph for its wrappers only. Call inside the inference compiler, first."""
    see_inputs_again(lowered)
    _convert_by_aten(lowered)


def _convert_by_aten(gm: GraphModule) -> None:
    """AOTAutograd converts floats that are inputs by an operator whose kernel is written in Python."""
    aten = torch.ops.aten._to_copy.default
    for node in gm.graph.find_nodes(op="call_function", target=torch.ops.prims.convert_element_type.default):
        value, dtype = node.args
        node.target, node.args, node.kwargs = aten, (value,), {"dtype": dtype}
    gm.recompile()


def _apart(gm: GraphModule, example_inputs: Sequence[Any]) -> Sequence[Any]:
    """The same without memory that several of them share.

    AOTAutograd would merge those of which one is written, and the next call may come with others. Whoever calls a graph
    that writes its arguments compares them, and does not call it where they overlap.
    """
    shares = Counter(storage_id(each) for each in example_inputs if _has_storage(each))
    if all(count == 1 for count in shares.values()):
        return example_inputs
    made = list(example_inputs)
    for index, (each, node) in enumerate(zip(example_inputs, gm.graph.find_nodes(op="placeholder"), strict=True)):
        fake = node.meta.get("example_value")
        if _has_storage(each) and shares[storage_id(each)] > 1 and isinstance(fake, FakeTensor):
            made[index] = _with_own_memory(fake)
    return made


def _has_storage(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor) and value.layout is torch.strided and not is_traceable_wrapper_subclass(value)
    )


def _with_own_memory(fake: FakeTensor) -> torch.Tensor:
    with fake.fake_mode, torch.no_grad():
        count = fake.untyped_storage().nbytes() // fake.itemsize
        memory = torch.empty(count, dtype=fake.dtype, device=fake.device)
        made = memory.as_strided(fake.shape, fake.stride(), fake.storage_offset())
        made = torch.conj(made) if fake.is_conj() else made
        made = negated_view(made) if fake.is_neg() else made
    return made.detach().requires_grad_(fake.requires_grad)


@dataclass(frozen=True, slots=True)
class InputSource:
    """Where an argument comes from: `x`, `self.l.weight`, `kv[0]`; parameter: whether it is an nn.Parameter.

    path: as Dynamo has it, `L['self']._modules['l']._parameters['weight']`.
    """

    name: str
    parameter: bool
    path: str = ""


def input_sources(gm: GraphModule) -> list[InputSource]:
    """For each placeholder of Dynamo's graph the expression that a user would recognise."""
    raw = [path_of_node(node) or node.name for node in gm.graph.find_nodes(op="placeholder")]
    return [InputSource(_readable(name), "_parameters[" in name, name) for name in raw]


def input_plans(
    gm: GraphModule, sources: Sequence[InputSource], positions: Sequence[int] | None = None
) -> tuple[InputPlan, ...]:
    """The role of each placeholder of an AOT graph. Call inside the inference compiler.

    sources: as `input_sources` gave them for the Dynamo graph that this one was lowered from. positions: of the
    placeholders among those that AOTAutograd made, if some were left out since.
    """
    known = aot.lowered()
    plans = []
    nodes = gm.graph.find_nodes(op="placeholder")
    for index, (position, node) in enumerate(zip(positions or range(len(nodes)), nodes, strict=True)):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            role = InputRole.SCALAR
        elif position in known.mutated:
            role = InputRole.MUTATED
        elif position in known.static:
            role = InputRole.STATIC
        else:
            role = InputRole.USER
        described = getattr(node.meta.get("desc"), "idx", position)
        has_source = isinstance(described, int) and described < len(sources)
        source = sources[described] if has_source else InputSource(node.name, False)
        plans.append(InputPlan(index, role, source.name, source.parameter and role is InputRole.STATIC))
    return tuple(plans)


def hands_through(
    gm: GraphModule, lowered: GraphModule, *, marks_outputs: bool = True, makes_views: bool = True
) -> bool:
    """Whether AOTAutograd's wrappers around the lowered graph do nothing at a call but hand it through.

    marks_outputs: whether it counts that they mark outputs whose sizes vary, for other compiled functions to know.
    makes_views: whether it counts that they return arguments, or make views of arguments anew.
    So it is where arguments and outputs are those of Dynamo's graph `gm`, one by one, no view is to be made anew and no
    mutation to be repeated outside the graph. Call inside the inference compiler.
    """
    known = aot.lowered()
    inputs = gm.graph.find_nodes(op="placeholder")
    outputs = gm.graph.output_node().all_input_nodes
    plain = {aot.OutputKind.PLAIN}
    if not makes_views:
        plain |= {aot.OutputKind.ARGUMENT, aot.OutputKind.VIEW_OF_ARGUMENT}
    return (
        # Fewer where arguments that share memory were merged, more where parameters or parts of subclasses were added.
        len(inputs) == len(lowered.graph.find_nodes(op="placeholder")) == known.inputs
        and not any(is_traceable_wrapper_subclass(node.meta.get("example_value")) for node in [*inputs, *outputs])
        and not [*gm.parameters(), *gm.buffers()]
        and all(each.kind in plain for each in known.outputs)
        and len(lowered.graph.output_node().args[0]) == len(known.outputs)  # type: ignore[arg-type]
        and known.repeated_mutations == 0
        and not (marks_outputs and known.marks_sizes)
        and not known.orders_effects
        and not known.does_more
    )


def _readable(source: str) -> str:
    """`L['self']._modules['l']._parameters['weight']` as `self.l.weight`, other names as Dynamo has them."""
    source = re.sub(r"\.?_(?:modules|parameters|buffers)\['([^']+)'\]", r".\1", source)
    return re.sub(r"^L\['(self|[A-Za-z_]\w*)'\]", r"\1", source)
