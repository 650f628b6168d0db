"""Work out sizes once: numbers that are known, and the same expression of symbols in several places."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from airgraph.torch_internals.symbolic_shapes import settled_expression_of

__all__ = ["fold_shape_arithmetic"]

_aten = torch.ops.aten
_QUESTIONS = {
    _aten.sym_size.int,
    _aten.sym_stride.int,
    _aten.sym_numel.default,
    _aten.sym_storage_offset.default,
}


def fold_shape_arithmetic(gm: GraphModule) -> int:
    """Replace a size that is a known number by it, and one that an input or an earlier node holds by that; how many.

    Sizes are what asks a tensor for its form, and arithmetic on such numbers.
    """
    folded = 0
    known: dict[Any, Node] = {}
    for node in list(gm.graph.nodes):
        value = node.meta.get("val")
        if not isinstance(value, (int, torch.SymInt)) or isinstance(value, bool):
            continue
        expression = settled_expression_of(value) if isinstance(value, torch.SymInt) else value
        if node.op == "placeholder":
            known.setdefault(expression, node)
            continue
        if not _is_pure(node):
            continue
        if isinstance(expression, int) or expression.is_Integer:
            _replace(node, int(expression))
        elif expression in known:
            _replace(node, known[expression])
        else:
            known[expression] = node
            continue
        folded += 1
    return folded


def _is_pure(node: Node) -> bool:
    """Whether a node only asks for a form or computes with numbers."""
    if node.op != "call_function":
        return False
    return node.target in _QUESTIONS or not isinstance(
        node.target, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)
    )


def _replace(node: Node, by: Node | int) -> None:
    for user in list(node.users):
        args, kwargs = torch.fx.node.map_arg((user.args, user.kwargs), lambda n: by if n is node else n)
        user.args, user.kwargs = args, kwargs
    node.graph.erase_node(node)
