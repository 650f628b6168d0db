"""Operators that communicate with other processes: torch.distributed's functional collectives."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter

from airgraph.torch_internals.groups import group_named

__all__ = [
    "NAMESPACE",
    "Counted",
    "begun",
    "collectives_in",
    "groups_of",
    "is_wait_for_collective",
    "name_and_ranks",
    "ranks_of",
    "reads_until_waited_for",
]

# What a call of it makes is there only after `wait_tensor`.
NAMESPACE = "_c10d_functional"
# The argument by which an operator is given its group.
_GROUP = "group_name"
# These start with a copy of what they are given, in PyTorch's form and in ours.
_COPIES_FIRST = {f"{NAMESPACE}::{name}" for name in ("all_reduce", "all_reduce_coalesced", "broadcast")}


def name_and_ranks(value: object) -> list[Any] | None:
    """What tells a group of processes from others; None for anything else."""
    if not torch.distributed.is_available() or not isinstance(value, torch.distributed.ProcessGroup):
        return None
    return [str(value.group_name), torch.distributed.get_process_group_ranks(value)]


def ranks_of(name: str) -> list[int] | None:
    """The processes of the group of this name, None where there is none."""
    group = group_of(name)
    return None if group is None else list(torch.distributed.get_process_group_ranks(group))


def group_of(name: str) -> Any:
    """The group of this name that this process is in, or None."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    return group_named(name)


def is_wait_for_collective(target: object) -> bool:
    """Whether an operator waits for what a collective makes; its result is its argument."""
    return isinstance(target, torch._ops.OpOverload) and target._schema.name == f"{NAMESPACE}::wait_tensor"


def reads_until_waited_for(target: object) -> bool:
    """Whether an operator may read its arguments for as long as nobody has waited for its result."""
    return _is_collective(target) and target._schema.name not in _COPIES_FIRST  # type: ignore[attr-defined]


class _Begun(threading.local):
    """How many collectives of programs this thread has begun, operator by operator."""

    number = 0

    def note(self, target: object) -> None:
        """An operator has been called."""
        self.number += _communicates(target)


begun = _Begun()


class Counted(Interpreter):
    """Runs a program as its module does, and notes what has begun."""

    def __init__(self, gm: GraphModule) -> None:
        super().__init__(gm)
        # Else it writes into the messages of what operators raise.
        self.extra_traceback = False

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = super().call_function(target, args, kwargs)
        begun.note(target)
        return result


def collectives_in(graph: Graph) -> int:
    """How many a graph begins."""
    return sum(_communicates(node.target) for node in graph.nodes)


def _is_collective(target: object) -> bool:
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != NAMESPACE:
        return False
    return not is_wait_for_collective(target)


def _communicates(target: object) -> bool:
    """Whether an operator is called by all ranks of a group, in whatever namespace: DTensor has some of its own."""
    return isinstance(target, torch._ops.OpOverload) and any(
        argument.name == _GROUP for argument in target._schema.arguments
    )


def groups_of(graph: Graph) -> list[Any]:
    """The groups of processes that a graph communicates in, each once, in an order that all its ranks share.

    Names that are numbers go by their value.
    """
    found: dict[str, Any] = {}
    for node in graph.nodes:
        if _communicates(node.target):
            for argument, value in zip(node.target._schema.arguments, node.args, strict=False):
                if argument.name == _GROUP:
                    found.setdefault(str(value), value)
            if _GROUP in node.kwargs:
                found.setdefault(str(node.kwargs[_GROUP]), node.kwargs[_GROUP])
    return [found[name] for name in sorted(found, key=lambda name: (len(name), name))]
