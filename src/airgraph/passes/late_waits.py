"""Wait for what a collective makes where it is used first, and not where it is started."""

from __future__ import annotations

from torch.fx import GraphModule, Node

from airgraph.program.collectives import is_wait_for_collective
from airgraph.program.streams import put_on, stream_of, streams_of

__all__ = ["wait_later_on_one_stream", "wait_where_used"]


def wait_where_used(gm: GraphModule) -> int:
    """Move waits for collectives to right before the first use of the result, onto its stream; returns how many moved.

    A trace has them right behind the collective, where nothing would run beside it. Left there where several streams
    use the result: the others need not come after the first.
    """
    position = {node: number for number, node in enumerate(gm.graph.nodes)}
    moved = 0
    for node in [each for each in gm.graph.nodes if is_wait_for_collective(each.target)]:
        users = sorted(node.users, key=position.__getitem__)
        if not users or len({_stream(user) for user in users}) > 1 or users[0].prev is node:
            continue
        users[0].prepend(node)
        put_on(node, _stream(users[0]))
        moved += 1
    return moved


def wait_later_on_one_stream(gm: GraphModule) -> int:
    """The same once more, where what was used first may be gone. With several streams the waits have their places."""
    return wait_where_used(gm) if len(streams_of(gm.graph)) == 1 else 0


def _stream(user: Node) -> str | None:
    """The output comes after all streams have ended."""
    return None if user.op == "output" else stream_of(user)
