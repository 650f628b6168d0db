"""Which values of an FX graph share memory, and when that memory is read last."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import Graph, Node

from airgraph.program.collectives import reads_until_waited_for
from airgraph.program.nodes import is_view, nodes_in

__all__ = ["Aliases"]

# Higher-order operators that write nothing and return new tensors.
_FUNCTIONAL = {torch.ops.higher_order.auto_functionalized, torch.ops.higher_order.auto_functionalized_v2}

_aten = torch.ops.aten
_ABSOLUTE_VIEWS = {
    _aten.as_strided.default,
    _aten.as_strided_.default,
    _aten.as_strided_copy.default,
    _aten.as_strided_scatter.default,
}


class Aliases:
    """The storages of a graph: each node belongs to those of the nodes that made them.

    The results of one operator are memory of their own each, known by the first node that takes them out; the node of
    the operator belongs to all of these. What a collective makes belongs to those that it reads, too: who waits for it
    uses them until then.

    A snapshot: changes of the graph are not followed, but `join` says that a node's memory now is another's.
    """

    def __init__(self, graph: Graph) -> None:
        self._order = {node: position for position, node in enumerate(graph.nodes)}
        self._roots: dict[Node, frozenset[Node]] = {}
        self._members: dict[Node, set[Node]] = {}
        self._elements: dict[tuple[Node, Any], Node] = {}
        for node in graph.nodes:
            roots = self._roots_of_new(node)
            for root in roots:
                self._members.setdefault(root, set()).add(node)
            # All of its results: where they go is asked of the whole, but of none where the others go.
            self._roots[node] = roots | self._results(node) if node.op == "call_function" else roots

    def roots(self, node: Node) -> frozenset[Node]:
        """The nodes that made the memory which this one lies in."""
        return self._roots[node]

    def made_by(self, node: Node) -> frozenset[Node]:
        """Of these, what is made when the node runs: itself, and each of its results."""
        return frozenset(root for root in self._roots[node] if root is node or _takes_one_of(root, node))

    def sharing(self, node: Node) -> set[Node]:
        """All nodes that may share memory with this one, itself included."""
        return set().union(*(self._members.get(root, ()) for root in self._roots[node]))

    def position(self, node: Node) -> int:
        return self._order[node]

    def users(self, node: Node) -> set[Node]:
        """All nodes that may read or write the memory of this one."""
        return {user for member in self.sharing(node) for user in member.users}

    def absolute_view(self, node: Node) -> Node | None:
        """A user of this memory that counts from the start of its storage, so that it would be another view of a value
        that lies elsewhere in one; None if there is none."""
        return next((user for user in self.users(node) if user.target in _ABSOLUTE_VIEWS), None)

    def used_after(self, node: Node, moment: Node) -> Node | None:
        """A node after `moment` that takes the memory of `node`, the output included; None if there is none."""
        later = [user for user in self.users(node) if self._order[user] > self._order[moment]]
        return min(later, key=self._order.__getitem__, default=None)

    def join(self, node: Node, other: Node) -> None:
        """From now on `node`, and all that lies in its memory, lies in that of `other`."""
        results = self.made_by(node) - {node}
        if results:
            # Each is joined to that of the other's by itself, as the same is taken out of it.
            self._roots[other] |= results
            self._roots[node] = self._roots[other]
            return
        theirs = self._roots[other]
        for member in self.sharing(node):
            for root in self._roots[member]:
                self._members[root].discard(member)
            self._roots[member] = theirs
            for root in theirs:
                self._members[root].add(member)

    def _roots_of_new(self, node: Node) -> frozenset[Node]:
        if node.op != "call_function":
            return frozenset({node})
        if is_view(node):
            base = node.args[0]
            if not isinstance(node.target, torch._ops.OpOverload) and isinstance(base, Node) and _makes_each(base):
                return frozenset({self._elements[base, node.args[1]]})
            bases = [base] if isinstance(base, Node) else list(base) if isinstance(base, (list, tuple)) else []
            return self._of_all(each for each in bases if isinstance(each, Node))
        if node.target in _FUNCTIONAL:
            return frozenset({node})
        if reads_until_waited_for(node.target):
            return self._of_all(node.all_input_nodes) | {node}
        if not isinstance(node.target, torch._ops.OpOverload):
            # What it does is not known: its results may lie anywhere that it sees.
            return self._of_all(node.all_input_nodes) | {node}
        written = _aliased_by_results(node)
        return self._of_all(written) if written else frozenset({node})

    def _results(self, node: Node) -> frozenset[Node]:
        """What is taken out of an operator's results, of each the first node that does."""
        if is_view(node) or not _makes_each(node):
            return frozenset()
        taken = sorted((user for user in node.users if _takes_one_of(user, node)), key=self._order.__getitem__)
        # Who takes the same element again takes the same tensor.
        return frozenset(self._elements.setdefault((node, user.args[1]), user) for user in taken)

    def _of_all(self, nodes: Iterable[Node]) -> frozenset[Node]:
        return frozenset().union(*(self._roots[node] for node in nodes))


def _takes_one_of(node: Node, results: Node) -> bool:
    return node.op == "call_function" and node.target is operator.getitem and node.args[0] is results


def _makes_each(node: Node) -> bool:
    """Whether each element of an operator's results is a tensor of its own."""
    if node.target in _FUNCTIONAL:
        return True
    if reads_until_waited_for(node.target):
        return False
    return isinstance(node.target, torch._ops.OpOverload) and not is_view(node) and not _aliased_by_results(node)


def _aliased_by_results(node: Node) -> list[Node]:
    """The arguments whose memory an operator's results lie in, by its schema: those of in-place operators."""
    schema = node.target._schema  # type: ignore[union-attr]
    sets = {name for result in schema.returns if result.alias_info for name in result.alias_info.before_set}
    found: list[Node] = []
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and sets & set(argument.alias_info.before_set):
            given: Any = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
            found.extend(nodes_in(given))
    return found
