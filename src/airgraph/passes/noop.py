"""Remove operators that give back what they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from airgraph.passes.analysis.in_place_forms import same_form
from airgraph.passes.analysis.input_chain import PARTS, is_put_back, is_whole, unseen
from airgraph.passes.analysis.memory_use import MemoryUse
from airgraph.program.nodes import is_view
from airgraph.torch_internals.symbolic_shapes import statically_known_true

__all__ = ["remove_noops"]

_aten = torch.ops.aten


def remove_noops(gm: GraphModule) -> int:
    """Replace an operator that changes nothing by its input; returns how many.

    Full slices, casts to the same type, repeats by one, powers of one, products with one, a cat of one tensor, padding
    by nothing, clones, copies and views that give the same form, what is put into the whole of a tensor or back into
    its part.
    A copy stays where an input or output would come to share memory with another, or where one of the two is written.
    """
    removed = 0
    use = MemoryUse(gm.graph)
    for node in list(gm.graph.nodes):
        source = _source(node)
        if source is None or not same_form(node, source):
            continue
        if any(user.op == "output" for user in node.users):
            continue
        if not is_view(node) and not use.may_stand_for(source, node):
            continue
        use.aliases.join(node, source)
        node.replace_all_uses_with(source)
        gm.graph.erase_node(node)
        removed += 1
    return removed


def _source(node: Node) -> Node | None:
    """The input whose values a node gives back, or None; the form is for the caller to compare."""
    if node.op != "call_function" or not node.args:
        return None
    if is_view(node) and (base := unseen(node)) is not node:
        return base
    rule = _RULES.get(node.target)
    if rule is None or not rule(node):
        return None
    source: Any = node.args[0]
    if node.target is _aten.cat.default:
        source = source[0]
    elif node.target is _aten.copy.default or (node.target in PARTS and is_whole(node)):
        source = node.args[1]
    return source if isinstance(source, Node) else None


def _always(node: Node) -> bool:
    return True


def _argument(node: Node, position: int, name: str, default: object) -> Any:
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)


def _is_one(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == 1


def _from_the_start(node: Node) -> bool:
    # A slice of the same length that steps by one begins at the start.
    return _argument(node, 4, "step", 1) == 1


def _keeps_layout(node: Node) -> bool:
    return node.kwargs.get("memory_format") in (None, torch.preserve_format)


_RULES: dict[Any, Callable[[Node], bool]] = {
    _aten.slice.Tensor: _from_the_start,
    _aten._to_copy.default: lambda node: _keeps_layout(node) and not node.kwargs.get("non_blocking", False),
    torch.ops.prims.convert_element_type.default: _always,
    _aten.repeat.default: lambda node: all(statically_known_true(times == 1) for times in node.args[1]),  # type: ignore[union-attr,arg-type]
    _aten.pow.Tensor_Scalar: lambda node: _is_one(node.args[1]),
    _aten.mul.Tensor: lambda node: _is_one(node.args[1]),
    _aten.mul.Scalar: lambda node: _is_one(node.args[1]),
    _aten.div.Tensor: lambda node: _is_one(node.args[1]),
    _aten.cat.default: lambda node: len(node.args[0]) == 1,  # type: ignore[arg-type]
    _aten.constant_pad_nd.default: lambda node: all(isinstance(n, int) and n == 0 for n in node.args[1]),  # type: ignore[union-attr]
    _aten.clone.default: _always,
    _aten.copy.default: _always,
    _aten.alias.default: _always,
    _aten.detach.default: _always,
    _aten.expand.default: _always,
    _aten.view.default: _always,
    _aten._unsafe_view.default: _always,
    _aten.reshape.default: _always,
    _aten.permute.default: lambda node: list(node.args[1]) == list(range(len(node.args[1]))),  # type: ignore[arg-type]
    **dict.fromkeys(PARTS, lambda node: is_whole(node) or is_put_back(node)),
}
