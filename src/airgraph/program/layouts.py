"""What a program sees of its inputs beside their values: strides, offset, storage."""

from __future__ import annotations

import enum
import operator
from collections.abc import Iterator

import torch
from torch.fx import GraphModule, Node

from airgraph.program.nodes import is_view

__all__ = ["Sees", "what_is_seen"]


class Sees(enum.IntEnum):
    """What somebody in a graph looks at, each with all before it."""

    VALUES = 0  # only values: where the elements lie is the kernel's business
    STRIDES = 1  # an operator asks for strides
    OFFSET = 2  # the offset in the storage, as a number
    STORAGE = 3  # the storage from its beginning, as `as_strided` does, and as an operator that is not ATen's may


_BLIND = {"aten", "prims"}
_STRIDES = {"sym_stride", "stride", "is_contiguous", "sym_is_contiguous", "is_non_overlapping_and_dense"}
_OFFSETS = {"sym_storage_offset", "storage_offset"}
_STORAGES = {"as_strided", "as_strided_", "as_strided_copy", "as_strided_scatter", "set_", "_reshape_alias"}


def what_is_seen(gm: GraphModule, viewed: frozenset[int] = frozenset()) -> tuple[Sees, ...]:
    """For each input, what the graph sees of it, directly or through views.

    viewed: positions of inputs that the caller is given views of, whose strides and offsets are numbers of the capture.
    """
    placeholders = gm.graph.find_nodes(op="placeholder")
    seen = (max(_seen_by(node), Sees.STRIDES if i in viewed else Sees.VALUES) for i, node in enumerate(placeholders))
    return tuple(seen)


def _seen_by(node: Node) -> Sees:
    most = Sees.VALUES
    pending, known = [node], {node}
    while pending:
        for user in pending.pop().users:
            most = max(most, _look(user))
            if _lies_in_its_argument(user) and user not in known:
                known.add(user)
                pending.append(user)
    return most


def _look(user: Node) -> Sees:
    if user.op != "call_function" or user.target is operator.getitem:
        return Sees.VALUES
    if not isinstance(user.target, torch._ops.OpOverload) or user.target.namespace not in _BLIND:
        return Sees.STORAGE
    name = user.target._schema.name.partition("::")[2]
    if name in _STORAGES:
        return Sees.STORAGE
    if name in _OFFSETS:
        return Sees.OFFSET
    return Sees.STRIDES if name in _STRIDES else Sees.VALUES


def _lies_in_its_argument(node: Node) -> bool:
    """Also where it was written."""
    return is_view(node) or (isinstance(node.target, torch._ops.OpOverload) and any(_aliases(node.target)))


def _aliases(op: torch._ops.OpOverload) -> Iterator[bool]:
    return (result.alias_info is not None for result in op._schema.returns)
