"""What stands in a graph for no line of the program, and so in no scope: on the stream of what uses it.

PyTorch computes with numbers that are arguments by operators that it puts in itself.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, GraphModule, Node

from airgraph.program.nodes import notes
from airgraph.program.streams import put_on, stream_of, streams_of

__all__ = ["place_with_users"]


def place_with_users(gm: GraphModule) -> None:
    """Put such nodes on the streams of their users, in place; one that several streams use is made on each of them."""
    graph = gm.graph
    if len(streams_of(graph)) == 1:
        return
    # From the end, so that users are in their places.
    for node in reversed(list(graph.nodes)):
        if _is_unplaced(node):
            _place(node, graph)
    gm.recompile()


def _is_unplaced(node: Node) -> bool:
    """Whether it is a pure operator that PyTorch has put in."""
    op = node.target
    if (
        not isinstance(op, torch._ops.OpOverload)
        or op._schema.is_mutable
        or torch.Tag.nondeterministic_seeded in op.tags
    ):
        return False
    is_tensor = isinstance(node.meta.get("val"), torch.Tensor)
    return is_tensor and not node.meta.keys() & {"custom", "stack_trace"} and "stream" not in notes(node)


def _place(node: Node, graph: Graph) -> None:
    users: dict[str | None, list[Node]] = {}
    for user in sorted(node.users):
        # An output is on no stream of its own.
        if user.op != "output":
            users.setdefault(stream_of(user), []).append(user)
    for number, (stream, found) in enumerate(users.items()):
        made = node
        if number > 0:
            with graph.inserting_before(found[0]):
                made = graph.node_copy(node)
            for user in found:
                user.replace_input_with(node, made)
        put_on(made, stream)
