"""Write an argument where its new values are made, not at the end of the graph."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from airgraph.passes.analysis.aliases import Aliases
from airgraph.program.nodes import written_nodes
from airgraph.program.streams import put_on, stream_of, streams_of

__all__ = ["copy_where_made"]

_COPY = torch.ops.aten.copy_.default


def copy_where_made(gm: GraphModule) -> int:
    """Move the copy of an argument's new values to their stream, right after they are made; returns how many moved.

    Functionalization puts it at the end of the graph, outside of all streams and after the events that are to tell that
    the argument is written. Left there where the argument's old values are still used, or the new ones written.
    """
    if len(streams_of(gm.graph)) == 1:
        return 0
    moved = 0
    for node in gm.graph.find_nodes(op="call_function", target=_COPY):
        target, source = node.args[:2]
        if not (isinstance(target, Node) and target.op == "placeholder"):
            continue
        if not (isinstance(source, Node) and source.op == "call_function") or source.next is node:
            continue
        if _is_needed_as_it_was(node, target, source, Aliases(gm.graph)):
            continue
        source.append(node)
        put_on(node, stream_of(source))
        moved += 1
    return moved


def _is_needed_as_it_was(node: Node, target: Node, source: Node, aliases: Aliases) -> bool:
    old = aliases.used_after(target, source)
    if old is not None and old is not node:
        return True
    made = aliases.position(source)
    return any(
        aliases.position(user) > made and not aliases.sharing(source).isdisjoint(written_nodes(user))
        for user in aliases.users(source)
    )
