"""The program that a capture records: an FX graph of ATen operators with its input plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from airgraph.program.dump import Dump
from airgraph.program.inputs import InputPlan, InputRole
from airgraph.program.layouts import Sees, what_is_seen
from airgraph.program.nodes import without_views

__all__ = ["CaptureProgram"]


@dataclass(frozen=True, slots=True)
class CaptureProgram:
    """name: unique in the process, as reports show it. device: where all its tensors lie.

    input_views: for each output that is an input or a chain of views of one: the index of that input. sees: of each
    input, what the graph looks at beside its values. fixed_offsets: inputs whose offset in the storage is a condition,
    though the graph does not look at it. strided_writes: inputs that are written through `as_strided`, which tracing
    knows only of an input's own elements. dump: where its captures are written for people to read, if
    anywhere. why_not_admitted: of arguments, why the program is not right for them, or None; for a program that nobody
    else guards.
    """

    name: str
    gm: GraphModule
    inputs: tuple[InputPlan, ...]
    device: torch.device
    input_views: dict[int, int]
    sees: tuple[Sees, ...]
    dump: Dump | None = None
    fixed_offsets: frozenset[int] = frozenset()
    why_not_admitted: Callable[[Sequence[Any]], str | None] | None = None
    strided_writes: frozenset[int] = frozenset()

    @classmethod
    def build(
        cls,
        name: str,
        gm: GraphModule,
        inputs: tuple[InputPlan, ...],
        device: torch.device,
        dump: Dump | None = None,
        *,
        fixed_offsets: frozenset[int] = frozenset(),
        why_not_admitted: Callable[[Sequence[Any]], str | None] | None = None,
    ) -> CaptureProgram:
        views = _outputs_that_view_inputs(gm, inputs)
        outputs: Any = gm.graph.output_node().args[0]
        viewed = frozenset(base for index, base in views.items() if outputs[index].op != "placeholder")
        sees, strided = what_is_seen(gm, viewed), _strided_writes(gm, inputs)
        return cls(name, gm, inputs, device, views, sees, dump, fixed_offsets, why_not_admitted, strided)


def _outputs_that_view_inputs(gm: GraphModule, inputs: Sequence[InputPlan]) -> dict[int, int]:
    position = {node: i for i, node in enumerate(gm.graph.find_nodes(op="placeholder"))}
    found = {}
    for index, output in enumerate(gm.graph.output_node().args[0]):  # type: ignore[arg-type]
        node = without_views(output)
        if isinstance(node, Node) and node in position and inputs[position[node]].role is not InputRole.SCALAR:
            found[index] = position[node]
    return found


def _strided_writes(gm: GraphModule, inputs: Sequence[InputPlan]) -> frozenset[int]:
    position = {node: i for i, node in enumerate(gm.graph.find_nodes(op="placeholder"))}
    found = set()
    for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.as_strided_scatter.default):
        base: Any = node
        while isinstance(base, Node) and base not in position and base.args:
            base = base.args[0]
        if base in position and inputs[position[base]].role is InputRole.MUTATED:
            found.add(position[base])
    return frozenset(found)
