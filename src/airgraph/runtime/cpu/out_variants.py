"""Which `out=` overload computes the same as a functional operator, and the reverse."""

from __future__ import annotations

import functools

import torch

__all__ = ["elementwise_functional", "functional_overload", "out_overload"]


@functools.cache
def out_overload(op: torch._ops.OpOverload) -> str | None:
    """The overload name whose arguments are `op`'s followed by one `out` tensor a result, or None.

    Only overloads with a CPU kernel of their own count: the generated ones call the functional operator and copy.
    Losses do not count: some resize `out` to hold the values before they reduce them.
    """
    inputs = [(a.name, str(a.type)) for a in op._schema.arguments]
    results = [str(r.type) for r in op._schema.returns]
    if not results or any(kind != "Tensor" for kind in results) or ("reduction", "int") in inputs:
        return None
    for name in op.overloadpacket.overloads():
        candidate = getattr(op.overloadpacket, name)
        arguments = candidate._schema.arguments
        outs = [a for a in arguments if a.is_out]
        plain = [(a.name, str(a.type)) for a in arguments if not a.is_out]
        if len(outs) != len(results) or any(str(a.type) != "Tensor" for a in outs) or plain != inputs:
            continue
        if torch._C._dispatch_has_kernel_for_dispatch_key(candidate.name(), "CPU"):
            return candidate._schema.overload_name
    return None


@functools.cache
def functional_overload(op: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The overload that computes the same as an out-variant and returns new tensors, or None."""
    inputs = [(a.name, str(a.type)) for a in op._schema.arguments if not a.is_out]
    for name in op.overloadpacket.overloads():
        candidate = getattr(op.overloadpacket, name)
        arguments = candidate._schema.arguments
        plain = [(a.name, str(a.type)) for a in arguments[: len(inputs)]]
        # Factories such as arange take dtype and device besides.
        optional = all(a.has_default_value() for a in arguments[len(inputs) :])
        if plain == inputs and optional and not candidate._schema.is_mutable:
            return candidate
    return None


@functools.cache
def elementwise_functional(op: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The functional form of an in-place operator that works element by element, so that `out` may be the input."""
    name = op.overloadpacket.__name__
    if op.namespace != "aten" or not name.endswith("_") or name.endswith("__"):
        return None
    functional = getattr(getattr(torch.ops.aten, name[:-1], None), op._overloadname, None)
    if functional is None or torch.Tag.pointwise not in functional.tags or functional._schema.is_mutable:
        return None
    same = [(a.name, str(a.type)) for a in functional._schema.arguments] == [
        (a.name, str(a.type)) for a in op._schema.arguments
    ]
    return functional if same and out_overload(functional) is not None else None
