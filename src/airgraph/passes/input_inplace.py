"""Undo the functionalization of input mutations.

AOTAutograd turns `cache.index_copy_(...)` into `new = index_copy(cache, ...)` with `cache.copy_(new)` at the end of the
graph: two copies of the whole cache a call. Where nothing reads the old value after `new` is made, the operator runs in
place and the copy goes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

__all__ = ["reinplace_mutated_inputs"]

# Their schemas do not say so, but their results share the input's memory.
_HIDDEN_VIEWS = {"aten::_unsafe_view", "aten::unsafe_split", "aten::unsafe_chunk", "aten::unsafe_split_with_sizes"}


def reinplace_mutated_inputs(gm: GraphModule) -> int:
    """Replace `copy_(input, op(input, ...))` by `op_(input, ...)`, also for chains of such operators.

    A chain is left alone if an old value, or a view of one, is read after the operator that replaces it, if
    one of the operator's other arguments is a view of it, or if the new value is an output. Returns the number of
    copies removed.
    """
    order = {node: position for position, node in enumerate(gm.graph.nodes)}
    removed = 0
    for copy in list(gm.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)):
        target, value = copy.args[0], copy.args[1]
        if not (isinstance(target, Node) and target.op == "placeholder" and not copy.users):
            continue
        chain = _chain(target, value)
        if not chain or not _safe(target, chain, copy, order):
            continue
        for node in chain:
            in_place = _in_place_form(node)
            assert in_place is not None
            node.target = in_place
        chain[-1].replace_all_uses_with(target)
        for node in chain:
            node.args = (target, *node.args[1:])
        gm.graph.erase_node(copy)
        removed += 1
    return removed


def _chain(target: Node, value: object) -> list[Node]:
    """The operators that lead from the input to its new value, first to last; empty if there is no such chain."""
    chain: list[Node] = []
    while isinstance(value, Node) and value is not target:
        if value.op != "call_function" or _in_place_form(value) is None or not _same_layout(value, target):
            return []
        chain.append(value)
        value = value.args[0]
    return chain[::-1] if value is target else []


def _safe(target: Node, chain: list[Node], copy: Node, order: dict[Node, int]) -> bool:
    old = target
    for node in chain:
        for alias in _views_of(old):
            for user in alias.users:
                if user is copy and alias is target:
                    continue
                if user is node:
                    # Only as the value that is replaced, not also as another argument.
                    if alias is not old or _among(alias, (node.args[1:], node.kwargs)):
                        return False
                elif order[user] > order[node]:
                    return False
        old = node
    # An output must be memory of its own, not the input.
    return not any(user.op == "output" for node in chain for alias in _views_of(node) for user in alias.users)


def _among(node: Node, arguments: Any) -> bool:
    found: list[Node] = []
    torch.fx.node.map_arg(arguments, found.append)
    return node in found


def _views_of(node: Node) -> list[Node]:
    found = [node]
    for alias in found:
        for user in alias.users:
            op = user.target
            makes_view = isinstance(op, torch._ops.OpOverload) and (op.is_view or op._schema.name in _HIDDEN_VIEWS)
            takes_item = getattr(user.target, "__name__", "") == "getitem"
            if (makes_view or takes_item) and user.args and user.args[0] is alias:
                found.append(user)
    return found


def _in_place_form(node: Node) -> torch._ops.OpOverload | None:
    """The in-place operator with the same arguments, or None."""
    op = node.target
    if not isinstance(op, torch._ops.OpOverload) or op._schema.is_mutable or op.is_view or op.namespace != "aten":
        return None
    packet = getattr(torch.ops.aten, f"{op.overloadpacket.__name__}_", None)
    overload = getattr(packet, op._overloadname, None) if packet is not None else None
    if overload is None:
        return None
    same = [(a.name, str(a.type)) for a in overload._schema.arguments] == [
        (a.name, str(a.type)) for a in op._schema.arguments
    ]
    mutated = [a.alias_info is not None and a.alias_info.is_write for a in overload._schema.arguments]
    return overload if same and mutated[0] and not any(mutated[1:]) else None


def _same_layout(node: Node, target: Node) -> bool:
    ours, theirs = node.meta.get("val"), target.meta.get("val")
    return (
        isinstance(ours, torch.Tensor)
        and isinstance(theirs, torch.Tensor)
        and ours.dtype == theirs.dtype
        and ours.shape == theirs.shape
        and isinstance(node.args[0], Node)
        and isinstance(node.args[0].meta.get("val"), torch.Tensor)
        and node.args[0].meta["val"].dtype == theirs.dtype
        and node.args[0].meta["val"].shape == theirs.shape
    )
