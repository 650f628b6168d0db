"""Which operators write into their first argument what others return, known by their schemas."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.fx import Node

from airgraph.torch_internals.symbolic_shapes import statically_known_true

__all__ = ["fits_in_place", "in_place_form", "is_elementwise", "same_form", "same_shape_and_dtype"]

# Their in-place forms change a tensor's memory, not its values.
_NAMESPACES = ("aten", "airgraph")
_MEMORY = {"aten::resize", "aten::resize_as", "aten::set"}


@functools.cache
def in_place_form(op: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The in-place operator with the same arguments, which it writes only the first of; or None."""
    schema = op._schema
    if schema.is_mutable or op.is_view or op.namespace not in _NAMESPACES or schema.name in _MEMORY:
        return None
    packet = getattr(getattr(torch.ops, op.namespace), f"{op.overloadpacket.__name__}_", None)
    overload = getattr(packet, op._overloadname, None) if packet is not None else None
    if overload is None or len(schema.returns) != 1:
        return None
    same = [(a.name, str(a.type)) for a in overload._schema.arguments] == [
        (a.name, str(a.type)) for a in schema.arguments
    ]
    mutated = [a.alias_info is not None and a.alias_info.is_write for a in overload._schema.arguments]
    return overload if same and mutated[0] and not any(mutated[1:]) else None


def fits_in_place(node: Node) -> bool:
    """Whether a node's operator has an in-place form and its result has the form of its first argument."""
    return (
        isinstance(node.target, torch._ops.OpOverload)
        and in_place_form(node.target) is not None
        and bool(node.args)
        and isinstance(node.args[0], Node)
        and same_form(node, node.args[0])
    )


def is_elementwise(node: Node) -> bool:
    """Whether each element of the result is computed from the elements at its place."""
    tags: Any = getattr(node.target, "tags", ())
    return torch.Tag.pointwise in tags


def same_form(a: Node, b: Node) -> bool:
    """Whether two values have the same shape, strides, dtype and device, for all sizes that the graph serves."""
    return same_shape_and_dtype(a, b) and _same(a.meta["val"].stride(), b.meta["val"].stride())


def same_shape_and_dtype(a: Node, b: Node) -> bool:
    """As `same_form`, whatever the strides."""
    ours, theirs = a.meta.get("val"), b.meta.get("val")
    return (
        isinstance(ours, torch.Tensor)
        and isinstance(theirs, torch.Tensor)
        and ours.dtype == theirs.dtype
        and ours.device == theirs.device
        and ours.is_conj() == theirs.is_conj()
        and ours.is_neg() == theirs.is_neg()
        and _same(ours.shape, theirs.shape)
    )


def _same(ours: tuple[int, ...] | torch.Size, theirs: tuple[int, ...] | torch.Size) -> bool:
    return len(ours) == len(theirs) and all(statically_known_true(a == b) for a, b in zip(ours, theirs, strict=True))
