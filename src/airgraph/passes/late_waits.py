"""Wait for what a collective makes where it is used first, and not where it is started."""

from __future__ import annotations

from collections.abc import Iterable

from torch.fx import GraphModule, Node

from airgraph.passes.analysis.aliases import Aliases
from airgraph.program.collectives import is_wait_for_collective
from airgraph.program.nodes import nodes_in, written_nodes
from airgraph.program.streams import put_on, stream_of, streams_of

__all__ = ["wait_later_on_one_stream", "wait_where_used"]


def wait_where_used(gm: GraphModule) -> int:
    """Move waits for collectives to right before the first use of the result, onto its stream; returns how many moved.

    A trace has them right behind the collective, where nothing would run beside it. Left there where several streams
    use the result: the others need not come after the first. What the collective reads is written by nobody before the
    wait. One whose result is only handed out becomes the last of its own stream: the graph ends when all have ended.
    """
    aliases = Aliases(gm.graph)
    writers = [node for node in gm.graph.nodes if written_nodes(node)]
    position = {node: number for number, node in enumerate(gm.graph.nodes)}
    one_stream = len(streams_of(gm.graph)) == 1
    moved = 0
    for node in [each for each in gm.graph.nodes if is_wait_for_collective(each.target)]:
        users = sorted(node.users, key=position.__getitem__)
        if not users or len({_stream(user) for user in users}) > 1:
            continue
        place = users[0]
        writer = _first_writer(writers, node, aliases, position)
        if writer is not None and position[writer] < position[place]:
            if not one_stream:
                # Where the writer's stream is at that moment, what the wait is for need not have begun.
                continue
            place = writer
        if place.prev is node:
            continue
        place.prepend(node)
        if users[0].op != "output":
            put_on(node, stream_of(users[0]))
        moved += 1
    return moved


def _first_writer(writers: Iterable[Node], wait: Node, aliases: Aliases, position: dict[Node, int]) -> Node | None:
    """The first operator behind a wait that writes what is read until then."""
    read = frozenset().union(*(aliases.roots(given) for given in nodes_in(wait.args)))
    later = (node for node in writers if position[node] > position[wait])
    return next((node for node in later if any(aliases.roots(each) & read for each in written_nodes(node))), None)


def wait_later_on_one_stream(gm: GraphModule) -> int:
    """The same once more, where what was used first may be gone. With several streams the waits have their places."""
    return wait_where_used(gm) if len(streams_of(gm.graph)) == 1 else 0


def _stream(user: Node) -> str | None:
    """The output comes after all streams have ended."""
    return None if user.op == "output" else stream_of(user)
