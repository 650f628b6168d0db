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

__all__ = ["CaptureProgram"]


@dataclass(frozen=True, slots=True)
class CaptureProgram:
    """name: unique in the process, as reports show it. device: where all its tensors lie.

    input_views: for each output that is an input or a chain of views of one: the index of that input. sees: of each
    input, what the graph looks at beside its values. fixed_offsets: inputs whose offset in the storage is a condition,
    though the graph does not look at it. dump: where its captures are written for people to read, if
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
        return cls(name, gm, inputs, device, views, what_is_seen(gm, viewed), dump, fixed_offsets, why_not_admitted)


def _outputs_that_view_inputs(gm: GraphModule, inputs: Sequence[InputPlan]) -> dict[int, int]:
    position = {node: i for i, node in enumerate(gm.graph.find_nodes(op="placeholder"))}
    found = {}
    for index, output in enumerate(gm.graph.output_node().args[0]):  # type: ignore[arg-type]
        node = output
        while isinstance(node, Node) and node.op == "call_function" and _is_view(node):
            node = node.args[0]
        if isinstance(node, Node) and node in position and inputs[position[node]].role is not InputRole.SCALAR:
            found[index] = position[node]
    return found


def _is_view(node: Node) -> bool:
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target.is_view
    # An element of a view operator's result list, such as split's.
    inner = node.args[0] if node.args else None
    return getattr(node.target, "__name__", "") == "getitem" and isinstance(inner, Node) and _is_view(inner)
