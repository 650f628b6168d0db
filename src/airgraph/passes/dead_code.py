"""Remove what nobody uses."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

__all__ = ["remove_dead_code"]


def remove_dead_code(gm: GraphModule) -> int:
    """Remove operators whose results are not used and that have no other effect; returns how many.

    Drawing random numbers is one: those drawn afterwards would be others.
    """
    before = len(gm.graph.nodes)
    gm.graph.eliminate_dead_code(_has_effect)
    return before - len(gm.graph.nodes)


def _has_effect(node: Node) -> bool:
    return node.is_impure() or torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
