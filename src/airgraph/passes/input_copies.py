"""Write an argument where its new values are made, not at the end of the graph."""

from __future__ import annotations

import torch
from torch.fx import Graph, GraphModule, Node

from airgraph.passes.analysis.aliases import Aliases
from airgraph.program.nodes import written_nodes
from airgraph.program.stream_marks import event_of, record_of, wait_for
from airgraph.program.streams import free_tag, put_on, stream_of, streams_of

__all__ = ["copy_where_made"]

_COPY = torch.ops.aten.copy_.default


def copy_where_made(gm: GraphModule) -> int:
    """Move the copy of an argument's new values to their stream, right after they are made; returns how many moved.

    Functionalization puts it at the end of the graph, outside of all streams and after the events that are to tell that
    the argument is written. Left there where the argument's old values are still used, or the new ones written; then it
    waits for all streams, as the end of the graph does.
    """
    if len(streams_of(gm.graph)) == 1:
        return 0
    moved = 0
    left = set()
    for node in gm.graph.find_nodes(op="call_function", target=_COPY):
        target, source = node.args[:2]
        if not (isinstance(target, Node) and target.op == "placeholder"):
            continue
        is_made_here = isinstance(source, Node) and source.op == "call_function"
        if not is_made_here or _is_needed_as_it_was(node, target, source, Aliases(gm.graph)):
            left.add(node)
            continue
        source.append(node)
        put_on(node, stream_of(source))
        moved += 1
    _wait_for_all_streams(gm.graph, left)
    return moved


def _wait_for_all_streams(graph: Graph, left: set[Node]) -> None:
    """Let each of these nodes begin when all that stands before it is done."""
    taken = {event[0] for event in map(event_of, graph.nodes) if event is not None}
    # The last node of each stream that was not yet waited for.
    running: dict[str | None, Node] = {}
    for node in list(graph.nodes):
        if node in left:
            others = [each for stream, each in running.items() if stream != stream_of(node)]
            for last in others:
                tag = free_tag(f"before {node.name}", taken)
                with graph.inserting_after(last):
                    recorded = record_of(graph, tag)
                with graph.inserting_before(node):
                    waits = wait_for(graph, tag)
                put_on(recorded, stream_of(last))
                put_on(waits, stream_of(node))
            running.clear()
        if node.op == "call_function":
            running[stream_of(node)] = node


def _is_needed_as_it_was(node: Node, target: Node, source: Node, aliases: Aliases) -> bool:
    old = aliases.used_after(target, source)
    if old is not None and old is not node:
        return True
    made = aliases.position(source)
    return any(
        aliases.position(user) > made and not aliases.sharing(source).isdisjoint(written_nodes(user))
        for user in aliases.users(source)
    )
