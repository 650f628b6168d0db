"""Forms of results: their shapes, strides and types, for the operators that most calls of a model are.

PyTorch's fake tensors know those of every operator. They take 60 to 600 µs a call, and import Dynamo, most of the time
until a graph that is read from a file first answers. What is here takes about 10 µs and imports nothing: an operator's
own kernel for the device meta, where that is not written in Python; and the rules of the families whose kernels are.
Whatever is not known for sure is left to fake tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from airgraph.program.operators import functional_form
from airgraph.program.own_operators import DECODE_ATTENTION, MIXED_MM, ROW_PROGRAM, ROW_PROGRAM_
from airgraph.program.row_programs import run_row_program
from airgraph.program.trees import leaves_of, mapped
from airgraph.runtime.cpu import form_rules as rules

__all__ = ["result_forms"]

_aten = torch.ops.aten
_META = torch.device("meta")

# Operators whose results fake tensors take from a kernel for meta that is not Python's.
_BY_KERNEL = frozenset(
    f"aten::{name}"
    for name in (
        "baddbmm", "embedding", "index_put_", "index_put", "copy_", "copy", "fill_", "zero_",
        "clone", "_to_copy", "_scaled_dot_product_flash_attention_for_cpu", "arange", "full", "zeros", "ones", "empty",
        "empty_strided", "scalar_tensor", "full_like", "zeros_like", "ones_like", "empty_like", "new_zeros",
        "new_full", "new_ones",
        "topk", "sort", "gather", "scatter", "scatter_", "index_copy",
        "index_select", "slice_scatter", "select_scatter", "constant_pad_nd", "repeat",
        "split_with_sizes_copy", "_unsafe_view", "rand",
    )
)  # fmt: skip

# Computed element by element; the type of the result is that which the operator gives. Of these, numbers are operands.
_OF_OPERANDS = {
    "add": ("Tensor", "Scalar"), "sub": ("Tensor", "Scalar"), "mul": ("Tensor", "Scalar"), "div": ("Tensor", "Scalar"),
    "eq": ("Tensor", "Scalar"), "ne": ("Tensor", "Scalar"), "lt": ("Tensor", "Scalar"), "le": ("Tensor", "Scalar"),
    "gt": ("Tensor", "Scalar"), "ge": ("Tensor", "Scalar"), "pow": ("Tensor_Tensor",), "where": ("self",),
    "bitwise_and": ("Tensor",), "bitwise_or": ("Tensor",), "bitwise_xor": ("Tensor",),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor", "maximum", "minimum"), ("default",)),
}  # fmt: skip
# Of these they are parameters.
_OF_ONE = {
    "pow": ("Tensor_Scalar",),
    **dict.fromkeys(
        (
            "abs", "bitwise_not", "ceil", "clamp", "clamp_max", "clamp_min", "cos", "erf", "exp", "floor", "gelu",
            "log", "log1p", "logical_not", "neg", "reciprocal", "relu", "round", "rsqrt", "sigmoid", "sign", "silu",
            "sin",
            "sqrt", "tanh", "trunc",
        ),
        ("default",),
    ),
}  # fmt: skip


def result_forms(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What a call on CPU gives, as tensors of the device meta; None where that is not known.

    What the call writes keeps its form. Errors of the operator itself are left to fake tensors, too.
    """
    rule = _rule(op)
    if rule is None:
        return None
    args, kwargs = _by_position(op, args, kwargs)
    tensors: list[torch.Tensor] = leaves_of(torch.Tensor, (args, *kwargs.values()))
    if any(tensor.is_conj() or tensor.is_neg() for tensor in tensors):
        return None
    try:
        return rule(
            op, mapped(torch.Tensor, _meta, args), {k: mapped(torch.Tensor, _meta, v) for k, v in kwargs.items()}
        )
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return None


def _meta(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_META)


def _by_position(
    op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Sequence[Any], dict[str, Any]]:
    """All arguments that have a position there, where rules look for them."""
    positional = _positional(op)
    if not any(name in kwargs for name in positional):
        return args, kwargs
    last = max(positional.index(name) for name in kwargs if name in positional)
    defaults = [each.default_value for each in op._schema.arguments[len(args) : last + 1]]
    names = positional[len(args) : last + 1]
    more = [kwargs.get(name, default) for name, default in zip(names, defaults, strict=True)]
    return (*args, *more), {name: value for name, value in kwargs.items() if name not in positional}


@functools.cache
def _positional(op: torch._ops.OpOverload) -> tuple[str, ...]:
    return tuple(each.name for each in op._schema.arguments if not each.kwarg_only)


@functools.cache
def _rule(op: torch._ops.OpOverload) -> Callable[..., Any] | None:
    if _is_single_out(op):
        functional = functional_form(op)
        return None if functional is None else _rule(functional) and _into_out
    return _by_kernel if op._schema.name in _BY_KERNEL and _is_of_tensors(op) else _RULES.get(op)


def _is_single_out(op: torch._ops.OpOverload) -> bool:
    return [each.is_out for each in op._schema.arguments].count(True) == 1 and len(op._schema.returns) == 1


def _into_out(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The form of a result that has its place already; one that would have to grow is left to fake tensors."""
    functional = functional_form(op)
    place = next(each.name for each in op._schema.arguments if each.is_out)
    if functional is None or place not in kwargs:
        return None
    rule, out = _rule(functional), kwargs[place]
    made = rule(functional, args, {k: v for k, v in kwargs.items() if k != place}) if rule is not None else None
    fits = isinstance(made, torch.Tensor) and made.shape == out.shape and made.dtype == out.dtype
    return out if fits else None


def _is_of_tensors(op: torch._ops.OpOverload) -> bool:
    """Whether it is an overload on tensors that makes its results: those on numbers and lists are TorchScript's."""
    arguments, returns = op._schema.arguments, op._schema.returns
    return not any(each.is_out for each in arguments) and all("Tensor" in str(each.type) for each in returns)


def _by_kernel(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if kwargs.get("pin_memory") or kwargs.get("layout") not in (None, torch.strided):
        return None
    device = kwargs.get("device")
    if device is not None and torch.device(device).type != "cpu":
        return None
    if device is not None or _is_constructor(op):
        kwargs = {**kwargs, "device": _META}
    is_put = op._schema.name in ("aten::index_put", "aten::index_put_")
    if is_put and any(each.dtype in (torch.bool, torch.uint8) for each in args[1] if each is not None):
        # Of a mask it depends on the values what is written.
        return None
    return op(*args, **kwargs)


@functools.cache
def _is_constructor(op: torch._ops.OpOverload) -> bool:
    arguments = op._schema.arguments
    return any(each.name == "device" for each in arguments) and not any(
        "Tensor" in str(each.type) for each in arguments
    )


def _mixed_product(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    left, right = args[:2]
    return rules.like(left, (left.shape[0], right.shape[1]))


def _decode_attention(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    # As the operator's own description has it.
    return torch.empty_like(args[0].transpose(1, 2)).transpose(1, 2)


def _row_program(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    self, others, program = args
    return run_row_program([self, *others], program, _form_of_instruction)


def _row_program_(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    made = _row_program(op, args, kwargs)
    return args[0] if made.shape == args[0].shape and made.dtype == args[0].dtype else None


def _form_of_instruction(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    rule = _rule(op)
    made = rule(op, args, kwargs) if rule is not None else None
    if made is None:
        raise ValueError(f"no rule says what {op} gives here")
    return made


def _overloads(table: Mapping[str, tuple[str, ...]], suffix: str = "") -> list[torch._ops.OpOverload]:
    packets = {name: getattr(_aten, f"{name}{suffix}", None) for name in table}
    found = [getattr(packet, each, None) for name, packet in packets.items() for each in table[name]]
    return [each for each in found if each is not None]


_RULES: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    **dict.fromkeys(_overloads(_OF_OPERANDS), rules.of_operands),
    **dict.fromkeys(_overloads(_OF_ONE), rules.of_one),
    **dict.fromkeys([*_overloads(_OF_OPERANDS, "_"), *_overloads(_OF_ONE, "_"), _aten.pow_.Scalar], rules.in_place),
    _aten.masked_fill.Scalar: rules.masked_fill,
    _aten.masked_fill.Tensor: rules.masked_fill,
    _aten.masked_fill_.Scalar: rules.masked_fill,
    _aten.masked_fill_.Tensor: rules.masked_fill,
    _aten.addmm.default: rules.addmm,
    _aten.index_copy_.default: rules.index_copy_,
    _aten.mm.default: rules.product(2),
    _aten.bmm.default: rules.product(3),
    MIXED_MM: _mixed_product,
    DECODE_ATTENTION: _decode_attention,
    ROW_PROGRAM: _row_program,
    ROW_PROGRAM_: _row_program_,
    _aten._log_softmax.default: rules.softmax,
    _aten._softmax.default: rules.softmax,
    _aten.cat.default: rules.cat,
    _aten.sum.dim_IntList: rules.reduced(rules.summed),
    _aten.mean.dim: rules.reduced(rules.averaged),
    _aten.amax.default: rules.reduced(lambda dtype: dtype),
    _aten.amin.default: rules.reduced(lambda dtype: dtype),
    _aten.any.dim: rules.reduced(rules.asked),
    _aten.all.dim: rules.reduced(rules.asked),
    _aten.sum.default: rules.reduced(rules.summed),
    _aten.mean.default: rules.reduced(rules.averaged),
    _aten.any.default: rules.reduced(rules.asked),
    _aten.all.default: rules.reduced(rules.asked),
    _aten.max.default: rules.reduced(lambda dtype: dtype),
    _aten.min.default: rules.reduced(lambda dtype: dtype),
    _aten.argmax.default: rules.of_largest,
    _aten.argmin.default: rules.of_largest,
    _aten.cumsum.default: rules.cumsum,
    _aten.native_layer_norm.default: rules.layer_norm,
}
