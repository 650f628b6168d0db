"""Numbers that a traced graph would only hand through: they are worked out from sizes at a call, without the graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from airgraph.cache.format.result_spec import Leaf, NumberLeaf

__all__ = ["Reduced", "without_numbers"]


@dataclass(frozen=True, slots=True)
class Reduced:
    """What is left of a graph. leaves: what each of its outputs was. positions: of its inputs that are left."""

    leaves: list[Leaf | NumberLeaf]
    positions: list[int]


def without_numbers(gm: GraphModule) -> Reduced:
    """Take the integers out of a lowered graph's outputs, in place, and then those inputs that nothing needs.

    A number that only counts something would else be part of each capture's key.
    """
    output = gm.graph.output_node()
    leaves: list[Leaf | NumberLeaf] = []
    kept: list[Any] = []
    returned: Sequence[Any] = output.args[0]  # type: ignore[assignment]
    for each in returned:
        value = each.meta.get("val") if isinstance(each, Node) else each
        if type(value) is int or isinstance(value, torch.SymInt):
            if isinstance(value, torch.SymInt):
                leaves.append(NumberLeaf.of(str(value.node.expr), value.node.hint))
            else:
                leaves.append(NumberLeaf.of(str(value), value))
        else:
            leaves.append(Leaf(len(kept)))
            kept.append(each)
    output.args = (tuple(kept),)
    inputs = {node: position for position, node in enumerate(gm.graph.find_nodes(op="placeholder"))}
    for node in reversed(gm.graph.nodes):
        if node is not output and not node.users and isinstance(node.meta.get("val"), (int, torch.SymInt)):
            inputs.pop(node, None)
            gm.graph.erase_node(node)
    gm.recompile()
    return Reduced(leaves, list(inputs.values()))
