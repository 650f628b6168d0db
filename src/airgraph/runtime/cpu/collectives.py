"""Functional collectives as a tape has them: written into memory that stays, and waited for there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from airgraph.errors import UnsupportedGraph
from airgraph.program.collectives import NAMESPACE

__all__ = ["is_collective", "record_collective"]

_aten = torch.ops.aten
_CLONED = {"all_reduce", "broadcast"}
_GATHERED: dict[str, Callable[[list[int], int], list[int]]] = {
    "all_gather_into_tensor": lambda shape, ranks: [shape[0] * ranks, *shape[1:]],
    "reduce_scatter_tensor": lambda shape, ranks: [shape[0] // ranks, *shape[1:]],
}


class Records(Protocol):
    """Where calls go to."""

    def record(self, op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any], source: str) -> Any: ...

    def record_on(self, op: torch._ops.OpOverload, tensor: torch.Tensor, source: str) -> None: ...

    def keep_to_the_end(self, tensor: torch.Tensor) -> None: ...


def is_collective(op: torch._ops.OpOverload) -> bool:
    return op.namespace == NAMESPACE and not op._schema.is_mutable


def record_collective(recorder: Records, op: torch._ops.OpOverload, args: Sequence[Any], where: str) -> Any:
    """Record a call of a functional collective.

    It is started in place, on a copy or on new memory, and goes on beside what follows, until it is waited for. Raises
    UnsupportedGraph for those that torch has no such form of.
    """
    name = op._schema.name.partition("::")[2]
    tensor = args[0]
    if name == "wait_tensor":
        recorder.record_on(op, tensor, where)
        return tensor
    in_place = getattr(torch.ops, NAMESPACE)
    if name in _CLONED:
        made = recorder.record(_aten.clone.default, (tensor,), {"memory_format": torch.contiguous_format}, where)
        recorder.record(getattr(in_place, f"{name}_").default, (made, *args[1:]), {}, where)
    elif name in _GATHERED:
        given = tensor
        if not tensor.is_contiguous():
            given = recorder.record(_aten.clone.default, (tensor,), {"memory_format": torch.contiguous_format}, where)
        shape = _GATHERED[name](list(tensor.shape), args[-2])
        options = {"dtype": tensor.dtype, "device": tensor.device}
        made = recorder.record(_aten.empty.memory_format, (shape,), options, where)
        recorder.record(getattr(in_place, f"{name}_out").default, (given, *args[1:]), {"out": made}, where)
        # It is read until the wait.
        recorder.keep_to_the_end(given)
    else:
        reason = "this collective has no form that writes into given memory"
        raise UnsupportedGraph(reason, operator=op.name(), source=where)
    return made
