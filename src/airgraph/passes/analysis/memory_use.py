"""Whether one value of a graph may take the place of another: who writes them and when, and what is handed out."""

from __future__ import annotations

import functools

import torch
from torch.fx import Graph, Node

from airgraph.passes.analysis.aliases import Aliases
from airgraph.passes.analysis.input_chain import leads_back
from airgraph.program.graph_order import GraphOrder
from airgraph.program.nodes import is_view, written_nodes
from airgraph.program.streams import stream_of

__all__ = ["MemoryUse"]


class MemoryUse:
    """The writes and the outputs of a graph, with its aliases and the order of its streams; a snapshot."""

    def __init__(self, graph: Graph) -> None:
        self.aliases = Aliases(graph)
        self._output = graph.output_node()
        self._graph = graph
        self._writes: list[tuple[Node, Node]] = []
        for node in graph.nodes:
            for written in written_nodes(node):
                self._writes.append((node, written))

    def handed_out(self, node: Node) -> bool:
        """Whether an output lies in the memory of this value."""
        return any(user is self._output for user in self.aliases.users(node))

    def written(self, node: Node, *, after: Node | None = None) -> bool:
        """Whether some operator writes the memory of this value (after a moment)."""
        roots = self.aliases.roots(node)
        return any(
            self.aliases.roots(target) & roots
            and (after is None or self.aliases.position(writer) > self.aliases.position(after))
            for writer, target in self._writes
        )

    def written_between(self, node: Node, first: Node, last: Node) -> bool:
        """Whether some operator may write the memory of a value after one that reads it, and before a later one."""
        roots = self.aliases.roots(node)
        begin, end = self.aliases.position(first), self.aliases.position(last)
        return any(
            self.aliases.roots(target) & roots
            and begin < self.aliases.position(writer)
            # Others are not kept after what is later on its own stream.
            and (self.aliases.position(writer) < end or stream_of(writer) != stream_of(last))
            for writer, target in self._writes
        )

    def may_stand_for(self, old: Node, new: Node) -> bool:
        """Whether a copy `new` of `old`, equal in form, can be replaced by `old` itself.

        Nobody may write either while the other is needed, except what it holds already, and no output may come to share
        memory with an input or with another output. No view may count from the start of the storage of `new`.
        """
        if self.handed_out(new) or self.written(new) or self.aliases.absolute_view(new) is not None:
            return False
        users = [user for user in self.aliases.users(new) if not is_view(user)]
        roots = self.aliases.roots(old)
        return not any(
            self.aliases.roots(target) & roots
            and self.aliases.position(new) < self.aliases.position(writer)
            and not all(self._done_before(user, writer) for user in users)
            and not _puts_back(writer, target, new, old)
            for writer, target in self._writes
        )

    def is_there_before(self, value: Node, node: Node) -> bool:
        """Whether a value is made before an operator begins, on whichever streams, and nobody writes it ever."""
        is_first = value.op == "placeholder" or (
            self.aliases.position(value) < self.aliases.position(node) and self._order.precedes(value, node)
        )
        return is_first and not self.written(value)

    @functools.cached_property
    def _order(self) -> GraphOrder:
        return GraphOrder.of(self._graph)

    def _done_before(self, user: Node, writer: Node) -> bool:
        """Whether a value is certainly read, on whichever stream, before another operator writes."""
        return self._order.precedes(user, writer)


def _puts_back(writer: Node, target: Node, new: Node, old: Node) -> bool:
    """Whether all that a write does, with `old` in the place of `new`, is to copy a tensor to itself."""
    is_copy = writer.target is torch.ops.aten.copy_.default
    return is_copy and leads_back(target, writer.args[1], new, old)
