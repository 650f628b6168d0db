"""Operators that communicate with other processes: torch.distributed's functional collectives."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph

__all__ = ["NAMESPACE", "groups_of", "is_wait_for_collective"]

# What a call of it makes is there only after `wait_tensor`.
NAMESPACE = "_c10d_functional"


def is_wait_for_collective(target: object) -> bool:
    """Whether an operator waits for what a collective makes; its result is its argument."""
    return isinstance(target, torch._ops.OpOverload) and target._schema.name == f"{NAMESPACE}::wait_tensor"


def groups_of(graph: Graph) -> list[Any]:
    """The groups of processes that a graph communicates in, each once, in an order that all its ranks share."""
    found: dict[str, Any] = {}
    for node in graph.nodes:
        target = node.target
        if isinstance(target, torch._ops.OpOverload) and target.namespace == NAMESPACE:
            for argument, value in zip(target._schema.arguments, node.args, strict=False):
                if argument.name == "group_name":
                    found.setdefault(str(value), value)
    return [found[name] for name in sorted(found)]
