"""A node of an FX graph: what it gives, what of that lies in another's memory, and what this package notes on it."""

from __future__ import annotations

import operator
from contextlib import nullcontext
from typing import Any, TypedDict, cast

import torch
from torch.fx import Node

from airgraph.program.operators import is_view_operator, written_arguments
from airgraph.torch_internals.fake_tensors import fake_mode_of

__all__ = ["Notes", "computed", "is_cast", "is_view", "nodes_in", "notes", "without_views", "written_nodes"]


_CASTS = {torch.ops.aten._to_copy.default, torch.ops.prims.convert_element_type.default}


class Notes(TypedDict, total=False):
    """The keys of `node.meta` that are this package's. PyTorch's own: `val`, `stack_trace`, `custom` and others.

    Within `custom`, which alone comes through AOTAutograd, there are a scope's tag and priority (`stream_marks`) and
    what else was asked for a part of the program (`unheeded`).
    """

    # The stream that a pass of the user's, or a cached graph, puts the node on; see `streams`.
    stream: str
    # Of that stream, where it is one of torch's own, or a cached graph says so.
    priority: int
    # Of a copy that functionalization put in, why the reinplace passes left it.
    why_kept: str
    # Dtype, shape and strides as text, where a graph comes from a cache and has no `val`.
    form: str
    # Arguments of a wrapped operator that lie in memory which it writes; see `passes/auto_functionalized`.
    shared_arguments: tuple[str, ...]


def notes(node: Node) -> Notes:
    return cast(Notes, node.meta)


def is_view(node: Node) -> bool:
    """Whether what a node gives lies in the memory of its first argument, and nothing is written.

    An element of results is a view of them.
    """
    if node.op != "call_function":
        return False
    if isinstance(node.target, torch._ops.OpOverload):
        return is_view_operator(node.target)
    return node.target is operator.getitem


def is_cast(node: Node) -> bool:
    """Whether a node gives its first argument in another dtype, or perhaps on another device."""
    return node.target in _CASTS


def without_views(value: Any) -> Any:
    """What a value is a view of, through all views: a node that is none, or what is no node."""
    while isinstance(value, Node) and is_view(value):
        value = value.args[0]
    return value


def computed(target: Any, *args: Any, **kwargs: Any) -> Any:
    """What a call gives for the values, fake tensors and symbols, of the nodes among its arguments.

    Raises what the operator does.
    """
    used: list[Any] = []

    def value(node: Node) -> Any:
        used.append(node.meta["val"])
        return used[-1]

    values, named = torch.fx.node.map_arg((args, kwargs), value)
    with fake_mode_of(used) or nullcontext(), torch.no_grad():
        return target(*values, **named)


def nodes_in(value: Any) -> list[Node]:
    """The nodes among arguments, however deep, in order."""
    found: list[Node] = []
    torch.fx.node.map_arg(value, found.append)
    return found


def written_nodes(node: Node) -> list[Node]:
    """The arguments that a node writes, by its operator's schema; all of them where that is not known."""
    if node.op == "call_function" and isinstance(node.target, torch._ops.HigherOrderOperator):
        return list(node.all_input_nodes)
    if not isinstance(node.target, torch._ops.OpOverload):
        return []
    return nodes_in(written_arguments(node.target, node.args, node.kwargs))
