"""Let operators write their results where an intermediate lay that nobody needs any more."""

from __future__ import annotations

import logging

import torch
from torch.fx import GraphModule, Node

from airgraph.passes.analysis.aliases import Aliases
from airgraph.passes.analysis.in_place_forms import fits_in_place, in_place_form, is_elementwise, same_form
from airgraph.program.nodes import nodes_in

log = logging.getLogger(__name__)

__all__ = ["reinplace_intermediates"]


def reinplace_intermediates(gm: GraphModule) -> int:
    """Replace `op(x, ...)` by `op_(x, ...)` where x is an intermediate that is dead afterwards, a copy of x by x.

    All that shares memory with x must be dead, x must have the result's shape, strides and dtype, and none of the other
    arguments may share memory with it, unless the operator works element by element and is given x itself. Inputs and
    constants are never written. Returns the number of operators replaced.
    """
    aliases = Aliases(gm.graph)
    changed = 0
    for node in list(gm.graph.nodes):
        if node.op != "call_function" or not (fits_in_place(node) or _is_copy(node)):
            continue
        obstacle = why_not_in_place(node, aliases)
        if obstacle is not None:
            log.debug("%s is not written in place: %s", node.name, obstacle)
            continue
        aliases.join(node, node.args[0])
        if _is_copy(node):
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
        else:
            node.target = in_place_form(node.target)
        changed += 1
    return changed


def _is_copy(node: Node) -> bool:
    base = node.args[0] if node.args else None
    return node.target is torch.ops.aten.clone.default and isinstance(base, Node) and same_form(node, base)


def why_not_in_place(node: Node, aliases: Aliases) -> str | None:
    """What stands in the way of writing a node's result into its first argument; None if nothing does."""
    base = node.args[0]
    assert isinstance(base, Node)
    if any(root.op != "call_function" for root in aliases.roots(base)):
        return "the memory is an input's or a constant's"
    later = aliases.used_after(base, node)
    if later is not None:
        return f"{later.name} takes the old value afterwards"
    absolute = aliases.absolute_view(node)
    if absolute is not None:
        return f"{absolute.name} counts from the start of its storage"
    others = nodes_in((node.args[1:], node.kwargs))
    overlapping = [other for other in others if aliases.roots(other) & aliases.roots(base)]
    if overlapping and not (is_elementwise(node) and all(other is base for other in overlapping)):
        return f"{overlapping[0].name}, another argument, may share its memory"
    return None
