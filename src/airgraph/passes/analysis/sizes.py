"""Sizes of values, which may be expressions of symbols, as arguments of new nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import Graph, Node, Proxy
from torch.fx.proxy import GraphAppendingTracer

from airgraph.torch_internals.symbolic_shapes import settled_expression_of, worked_out

__all__ = ["Sizes"]


class Sizes:
    """Writes sizes of a graph's values from the symbols that its inputs are, or that are sizes of its inputs."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._tracer = GraphAppendingTracer(graph)
        self._symbols: dict[Any, Node | tuple[Node, int]] = {}
        for node in graph.find_nodes(op="placeholder"):
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt):
                self._note(value, node)
            elif isinstance(value, torch.Tensor):
                for dim, size in enumerate(value.shape):
                    self._note(size, (node, dim))

    def known(self, values: Iterable[int | torch.SymInt]) -> bool:
        """Whether these can be written."""
        return all(isinstance(v, int) or settled_expression_of(v).free_symbols <= self._symbols.keys() for v in values)

    def write(self, value: int | torch.SymInt) -> int | Node:
        """A number, or a node that computes it where the graph inserts nodes at the moment."""
        if isinstance(value, int):
            return value
        expression = settled_expression_of(value)
        if expression.is_number:
            return int(expression)
        bound = {symbol: Proxy(self._node(symbol), self._tracer) for symbol in sorted(expression.free_symbols, key=str)}
        node: Node = worked_out(expression, bound).node
        node.meta.setdefault("val", value)
        return node

    def _note(self, size: int | torch.SymInt, where: Node | tuple[Node, int]) -> None:
        if isinstance(size, torch.SymInt) and settled_expression_of(size).is_symbol:
            self._symbols.setdefault(settled_expression_of(size), where)

    def _node(self, symbol: Any) -> Node:
        where = self._symbols[symbol]
        if isinstance(where, Node):
            return where
        tensor, dim = where
        node = self._graph.call_function(torch.ops.aten.sym_size.int, where)
        node.meta["val"] = tensor.meta["val"].shape[dim]
        return node
