"""As which functional operator, with the memory of its result given, the engine serves one that writes an argument."""

from __future__ import annotations

import functools

import torch

from airgraph.program.operators import functional_form, out_form

__all__ = ["functional_of", "is_elementwise", "out_overload", "takes_any_strides"]


def out_overload(op: torch._ops.OpOverload) -> str | None:
    """The name of the `out=` overload on CPU, or None."""
    form = out_form(op, "cpu")
    return None if form is None else form._schema.overload_name


@functools.cache
def functional_of(op: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """What computes the values that an operator writes into its one `out`, or, element by element, into itself."""
    if op.namespace not in ("aten", "airgraph") or not op._schema.is_mutable:
        return None
    outs = sum(argument.is_out for argument in op._schema.arguments)
    if outs:
        return functional_form(op) if outs == 1 else None
    functional = _without_underscore(op)
    return functional if functional is not None and is_elementwise(functional) else None


def is_elementwise(op: torch._ops.OpOverload) -> bool:
    """Whether its result may lie where an argument lies."""
    return torch.Tag.pointwise in op.tags


def takes_any_strides(op: torch._ops.OpOverload) -> bool:
    """Whether its `out` may lie in any way without a change of the values."""
    return torch.Tag.pointwise in op.tags and torch.Tag.nondeterministic_seeded not in op.tags


def _without_underscore(op: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    name = op.overloadpacket.__name__
    if not name.endswith("_") or name.endswith("__"):
        return None
    functional = getattr(getattr(getattr(torch.ops, op.namespace), name[:-1], None), op._overloadname, None)
    if functional is None or functional._schema.is_mutable:
        return None
    same = [(a.name, str(a.type)) for a in functional._schema.arguments] == [
        (a.name, str(a.type)) for a in op._schema.arguments
    ]
    return functional if same else None
