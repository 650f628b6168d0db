"""What an operator does with its arguments, and its other forms, known by its schema."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from airgraph.program.collectives import NAMESPACE, is_wait_for_collective
from airgraph.torch_internals.dispatcher import dispatch_key_of, has_kernel_for, has_python_kernel

__all__ = [
    "copied_nbytes",
    "functional_form",
    "is_of_torch",
    "is_view_operator",
    "keeps_program_order",
    "out_form",
    "written_arguments",
]

# Their schemas do not say so, but their results share the input's memory.
_HIDDEN_VIEWS = {
    f"aten::{name}"
    for name in ("_unsafe_view", "lift_fresh", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes")
}

# Their result is a copy, or put together from copies.
_COPIES = {"cat", "clone", "constant_pad_nd", "contiguous", "copy", "repeat", "stack", "_to_copy"}
# They copy their first argument and then write a part of the copy.
_COPIES_TO_WRITE = {
    *("index_add", "index_copy", "index_fill", "index_put", "index_reduce"),
    *("scatter", "scatter_add", "scatter_reduce", "masked_scatter"),
    *("as_strided_scatter", "diagonal_scatter", "select_scatter", "slice_scatter"),
}


@dataclass(frozen=True, slots=True)
class _HiddenWrites:
    """Arguments, by position and name, that an operator writes where another argument is true."""

    written: tuple[tuple[int, str], ...]
    where: tuple[int, str]


# Of operators whose schemas do not say that they write.
_HIDDEN_WRITES = {
    "aten::native_batch_norm": _HiddenWrites(((3, "running_mean"), (4, "running_var")), (5, "training")),
}


# Ours that compute as torch's do: see `own_operators`.
_OF_OUR_PASSES = (
    "airgraph::mixed_mm",
    "airgraph::grouped_mm",
    "airgraph::decode_attention",
    "airgraph::row_program",
    "airgraph::row_program_",
)


@functools.cache
def is_view_operator(op: torch._ops.OpOverload) -> bool:
    """Whether the results share memory with the first argument and nothing is written."""
    return op.is_view or op._schema.name in _HIDDEN_VIEWS


def is_of_torch(op: torch._ops.OpOverload) -> bool:
    """Whether it is torch's own in C++, which any thread may call. Others may be Python."""
    return op.namespace in ("aten", NAMESPACE) and not has_python_kernel(op.name())


def keeps_program_order(op: torch._ops.OpOverload) -> bool:
    """Whether calls of it come in the order of the program on all streams: what others than its arguments see of it.

    They draw random numbers, communicate with ranks that do so in the same order, or are the user's, who may do both.
    """
    if op._schema.name in _OF_OUR_PASSES:
        return False
    if op.namespace == NAMESPACE:
        return not is_wait_for_collective(op)
    return torch.Tag.nondeterministic_seeded in op.tags or not is_of_torch(op)


def written_arguments(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments, tensors or lists of them, that a call of an operator writes."""

    def given(position: int, name: str) -> Any:
        return args[position] if position < len(args) else kwargs.get(name)

    written = [given(position, name) for position, name in _written(op)]
    hidden = _HIDDEN_WRITES.get(op._schema.name)
    if hidden is not None and given(*hidden.where):
        written += [given(*each) for each in hidden.written]
    return [argument for argument in written if argument is not None]


@functools.cache
def _written(op: torch._ops.OpOverload) -> tuple[tuple[int, str], ...]:
    """Position and name of each argument that is written."""
    if not op._schema.is_mutable:
        return ()
    arguments = enumerate(op._schema.arguments)
    return tuple((i, a.name) for i, a in arguments if a.alias_info is not None and a.alias_info.is_write)


@functools.cache
def out_form(op: torch._ops.OpOverload, device_type: str, *, generated: bool = False) -> torch._ops.OpOverload | None:
    """The overload whose arguments are `op`'s followed by one `out` tensor a result, or None.

    generated: also one without a kernel of its own for the device, which calls the functional operator and copies.
    Losses do not count: some resize `out` to hold the values before they reduce them.
    """
    inputs = [(a.name, str(a.type)) for a in op._schema.arguments]
    results = [str(r.type) for r in op._schema.returns]
    if not results or any(kind != "Tensor" for kind in results) or ("reduction", "int") in inputs:
        return None
    key = dispatch_key_of(device_type)
    for name in op.overloadpacket.overloads():
        candidate: torch._ops.OpOverload = getattr(op.overloadpacket, name)
        arguments = candidate._schema.arguments
        outs = [a for a in arguments if a.is_out]
        plain = [(a.name, str(a.type)) for a in arguments if not a.is_out]
        if len(outs) != len(results) or any(str(a.type) != "Tensor" for a in outs) or plain != inputs:
            continue
        if generated or has_kernel_for(candidate.name(), key):
            return candidate
    return None


@functools.cache
def functional_form(op: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The overload that computes the same as an out-variant and returns new tensors, or None."""
    inputs = [(a.name, str(a.type)) for a in op._schema.arguments if not a.is_out]
    for name in op.overloadpacket.overloads():
        candidate: torch._ops.OpOverload = getattr(op.overloadpacket, name)
        arguments = candidate._schema.arguments
        plain = [(a.name, str(a.type)) for a in arguments[: len(inputs)]]
        # Factories such as arange take dtype and device besides.
        optional = all(a.has_default_value() for a in arguments[len(inputs) :])
        if plain == inputs and optional and not candidate._schema.is_mutable:
            return candidate
    return None


def copied_nbytes(op: torch._ops.OpOverload, args: Sequence[Any], result: Any) -> int:
    """Bytes of values that a call moves without computing anything; 0 for operators that compute."""
    copied = _copied(op)
    if copied == "argument":
        return int(args[0].nbytes)
    return int(result.nbytes) if copied == "result" and isinstance(result, torch.Tensor) else 0


@functools.cache
def _copied(op: torch._ops.OpOverload) -> str | None:
    """Whether what a call copies is as large as its first argument or as its result."""
    namespace, _, name = op._schema.name.partition("::")
    if namespace != "aten":
        return None
    if name == "copy_":
        return "argument"
    return "result" if name in _COPIES or name in _COPIES_TO_WRITE else None
