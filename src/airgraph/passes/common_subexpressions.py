"""Compute once what a graph computes twice."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from airgraph.passes.analysis.in_place_forms import fits_in_place, is_elementwise
from airgraph.passes.analysis.input_chain import PARTS
from airgraph.passes.analysis.memory_use import MemoryUse
from airgraph.program.nodes import is_view
from airgraph.program.streams import stream_of

__all__ = ["share_common_subexpressions"]

_aten = torch.ops.aten
# New memory in the form of a tensor, of which no values are taken.
_LIKE = {
    *(_aten.empty_like.default, _aten.zeros_like.default, _aten.ones_like.default, _aten.full_like.default),
    *(_aten.new_empty.default, _aten.new_zeros.default, _aten.new_ones.default, _aten.new_full.default),
    *(_aten.new_empty_strided.default,),
}


def share_common_subexpressions(gm: GraphModule) -> int:
    """Let a later call of an operator with the same arguments use the result of the earlier; returns how many.

    Only of operators that always give the same; not where the result or an argument is written, nor where it is handed
    out, since two outputs would come to share memory; nor of new memory that others are to write, of which they would
    have to make copies. Two equal views are one anyway.
    """
    shared = 0
    first: dict[Any, Node] = {}
    use = MemoryUse(gm.graph)
    for node in list(gm.graph.nodes):
        key = _key(node)
        if key is None:
            continue
        earlier = first.setdefault(key, node)
        if earlier is node:
            continue
        if not is_view(node) and not _may_be_shared(node, earlier, use):
            continue
        use.aliases.join(node, earlier)
        node.replace_all_uses_with(earlier)
        gm.graph.erase_node(node)
        shared += 1
    return shared


def _may_be_shared(node: Node, earlier: Node, use: MemoryUse) -> bool:
    written = any(use.written(each) for each in (earlier, node, *node.all_input_nodes))
    if written or use.handed_out(node) or not _reproducible(node):
        return False
    return not _is_filled(node) or not any(_is_written_later(each, use) for each in (earlier, node))


def _is_filled(node: Node) -> bool:
    """Whether a value is new memory, filled or not: it costs no more than a copy of it."""
    return not any(isinstance(source.meta.get("val"), torch.Tensor) for source in node.all_input_nodes) or (
        node.target in _LIKE
    )


def _is_written_later(node: Node, use: MemoryUse) -> bool:
    """Whether others are to write a value's memory; if somebody else still needs the value, they must copy it."""
    return any(
        user.target is torch.ops.aten.clone.default
        or user.target in PARTS
        or (fits_in_place(user) and not is_elementwise(user))
        for user in use.aliases.users(node)
    )


def _key(node: Node) -> Any:
    """What a call computes; None for what is not a pure operator or cannot be compared."""
    if node.op != "call_function":
        return None
    if isinstance(node.target, torch._ops.OpOverload):
        if node.target._schema.is_mutable or node.target.namespace not in ("aten", "prims"):
            return None
    elif getattr(node.target, "__name__", "") != "getitem":
        return None
    # What another stream computes may not be there yet.
    key = (stream_of(node), node.target, _frozen(node.args), _frozen(node.kwargs))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _frozen(value: Any) -> Any:
    """With types, so that 1, 1.0 and True differ."""
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, dict):
        return tuple(sorted((name, _frozen(item)) for name, item in value.items()))
    # Of floats the text, which tells 0.0 and -0.0 apart and takes every nan for the same.
    known = repr(value) if isinstance(value, (float, complex)) else value
    return value if isinstance(value, Node) else (type(value), known)


def _reproducible(node: Node) -> bool:
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded not in tags
