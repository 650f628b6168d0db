"""Nodes that nobody needs any more."""

from __future__ import annotations

from torch.fx import Graph, Node

__all__ = ["erase_unused"]


def erase_unused(graph: Graph, node: Node) -> None:
    """Erase a node without users, and what it alone needed; nothing with effects."""
    waiting, erased = [node], set[Node]()
    while waiting:
        each = waiting.pop()
        if each.op == "call_function" and not each.users and not each.is_impure() and each not in erased:
            erased.add(each)
            waiting += each.all_input_nodes
            graph.erase_node(each)
