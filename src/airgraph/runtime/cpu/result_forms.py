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
from airgraph.runtime.engine.loading import engine

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


def _of_operands(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    operands = [each if isinstance(each, torch.Tensor) else _NUMBER for each in args]
    dtype = _dtype_of(op, args, kwargs)
    # The condition of `where` stays what it is.
    if _may_be_cast(args[1:] if op is _aten.where.self else args, dtype):
        return None
    form = engine().pointwise_form(operands)
    return None if form is None else _new(form, dtype)


def _of_one(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    dtype = _dtype_of(op, args, kwargs)
    if _may_be_cast(args[:1], dtype):
        return None
    form = engine().pointwise_form(args[:1])
    return None if form is None else _new(form, dtype)


def _may_be_cast(operands: Sequence[Any], dtype: torch.dtype) -> bool:
    """Whether an operand may be cast to memory of another form first, from which the result takes its strides.

    dtype: of the result, which what is compared is not cast to.
    """
    tensors = [each for each in operands if isinstance(each, torch.Tensor)]
    common = torch.result_type(*operands) if dtype is torch.bool and len(operands) == 2 else dtype
    if dtype is torch.bool and len(operands) == 1:
        common = tensors[0].dtype
    return not all(each.dtype == common or _is_dense(each) for each in tensors)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill its memory, each once."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def _in_place(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    # Raises where the types do not fit.
    _dtype_of(op, args, kwargs)
    shapes = [each.shape for each in args if isinstance(each, torch.Tensor)]
    return args[0] if _broadcast(*shapes) == args[0].shape else None


def _new(form: tuple[Sequence[int], Sequence[int]], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(*form, dtype=dtype, device=_META)


_NUMBER = torch.empty((), device=_META)
_dtypes: dict[Any, torch.dtype] = {}


def _dtype_of(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.dtype:
    """The type of the result, from a call on one element each: it depends on the types, which operands have no
    dimensions, and the numbers' types."""
    key = (op, tuple(map(_typed, args)), tuple((k, _typed(v)) for k, v in kwargs.items()), torch.get_default_dtype())
    known = _dtypes.get(key)
    if known is None:
        with torch.inference_mode():
            made = op(*map(_element, args), **{name: _element(value) for name, value in kwargs.items()})
        known = _dtypes[key] = made.dtype
    return known


def _typed(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, value.dim() > 0
    return value if isinstance(value, (str, torch.dtype)) else type(value)


def _element(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.ones((1,) if value.dim() else (), dtype=value.dtype, device="cpu")


def _like(tensor: torch.Tensor, shape: Sequence[int], dtype: torch.dtype | None = None) -> torch.Tensor:
    return tensor.new_empty(shape, dtype=dtype or tensor.dtype)


def _mixed_product(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    left, right = args[:2]
    return _like(left, (left.shape[0], right.shape[1]))


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


def _addmm(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    added, a, b = args[:3]
    if not added.dtype == a.dtype == b.dtype:
        return None
    made = _product(2)(op, (a, b), kwargs)
    return None if made is None or _broadcast(added.shape, made.shape) != made.shape else made


def _product(dims: int) -> Callable[..., Any]:
    """Of two matrices, or with 3 dimensions of two rows of as many."""

    def rule(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        a, b = args
        alike = a.dtype == b.dtype and a.dim() == b.dim() == dims and a.shape[:-2] == b.shape[:-2]
        return _like(a, (*a.shape[:-1], b.shape[-1])) if alike and a.shape[-1] == b.shape[-2] else None

    return rule


def _broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape of what is computed of these element by element; ValueError where there is none. PyTorch's own imports
    sympy."""
    rank = max(map(len, shapes))
    found = []
    for sizes in zip(*((*(1,) * (rank - len(shape)), *shape) for shape in shapes), strict=True):
        wide = {size for size in sizes if size != 1}
        if len(wide) > 1:
            raise ValueError(f"shapes do not fit: {shapes}")
        found.append(wide.pop() if wide else 1)
    return tuple(found)


def _softmax(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    x, dim, half_to_float = args
    if not -x.dim() <= dim < x.dim() or not x.is_floating_point() or half_to_float:
        return None
    return _like(x, x.shape)


def _cat(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    tensors, dim = args[0], args[1] if len(args) > 1 else kwargs.get("dim", 0)
    first = tensors[0]
    dim = dim + first.dim() if dim < 0 else dim
    alike = all(
        each.dtype == first.dtype and each.dim() == first.dim() and _is_only_contiguous(each)
        and all(a == b for n, (a, b) in enumerate(zip(each.shape, first.shape, strict=True)) if n != dim)
        for each in tensors
    )  # fmt: skip
    if not alike or not 0 <= dim < first.dim():
        return None
    return _like(first, [*first.shape[:dim], sum(each.shape[dim] for each in tensors), *first.shape[dim + 1 :]])


def _is_only_contiguous(tensor: torch.Tensor) -> bool:
    """Whether it is dense in the order of its dimensions, and not in another order that the result could take too."""
    other = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    return tensor.is_contiguous() and (other is None or not tensor.is_contiguous(memory_format=other))


def _reduced(dtype_of: Callable[[torch.dtype], torch.dtype | None]) -> Callable[..., Any]:
    """A reduction over dimensions, whose result is contiguous. dtype_of: of the result; None if it raises."""

    def rule(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        x, dims, keepdim = (*args, *[None] * 2)[:3]
        dims = [dims] if isinstance(dims, int) else dims
        dtype = kwargs.get("dtype") or dtype_of(x.dtype)
        if dtype is None:
            return None
        # All of them where none is given.
        dims = dims or range(x.dim())
        taken = {dim % x.dim() for dim in dims if -x.dim() <= dim < x.dim()}
        if len(taken) < len(dims):
            return None
        sizes = [1 if n in taken else size for n, size in enumerate(x.shape) if keepdim or n not in taken]
        return _like(x, sizes, dtype)

    return rule


def _summed(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.int64


def _averaged(dtype: torch.dtype) -> torch.dtype | None:
    return dtype if dtype.is_floating_point else None


def _asked(dtype: torch.dtype) -> torch.dtype:
    return torch.uint8 if dtype == torch.uint8 else torch.bool


def _of_largest(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    # Of nothing it is an error, and of complex numbers too.
    is_known = args[0].numel() and not args[0].is_complex()
    return _reduced(lambda dtype: torch.int64)(op, args, kwargs) if is_known else None


def _cumsum(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    x, dim = args[:2]
    if not -x.dim() <= dim < x.dim():
        return None
    return _like(x, x.shape, kwargs.get("dtype") or _summed(x.dtype))


def _layer_norm(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    x, normalised, weight, bias = args[:4]
    given = [each for each in (weight, bias) if each is not None]
    count = len(normalised)
    if x.dtype not in (torch.float32, torch.float64) or any(each.dtype != x.dtype for each in given):
        return None
    sizes = tuple(normalised)
    if (
        not 0 < count <= x.dim()
        or tuple(x.shape[-count:]) != sizes
        or any(tuple(each.shape) != sizes for each in given)
    ):
        return None
    statistics = [*x.shape[: x.dim() - count], *[1] * count]
    return _like(x, x.shape), _like(x, statistics), _like(x, statistics)


def _index_copy_(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    x, dim, index, source = args
    if not -x.dim() <= dim < x.dim() or index.dim() != 1 or index.dtype != torch.int64 or x.dtype != source.dtype:
        return None
    sizes = list(x.shape)
    sizes[dim] = index.shape[0]
    return x if list(source.shape) == sizes else None


def _masked_fill(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    x, mask, value = args
    if mask.dtype != torch.bool or (isinstance(value, torch.Tensor) and value.dim()):
        return None
    shape = _broadcast(x.shape, mask.shape)
    if op._schema.is_mutable:
        return x if shape == x.shape else None
    return _like(x, shape)


def _overloads(table: Mapping[str, tuple[str, ...]], suffix: str = "") -> list[torch._ops.OpOverload]:
    packets = {name: getattr(_aten, f"{name}{suffix}", None) for name in table}
    found = [getattr(packet, each, None) for name, packet in packets.items() for each in table[name]]
    return [each for each in found if each is not None]


_RULES: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    **dict.fromkeys(_overloads(_OF_OPERANDS), _of_operands),
    **dict.fromkeys(_overloads(_OF_ONE), _of_one),
    **dict.fromkeys([*_overloads(_OF_OPERANDS, "_"), *_overloads(_OF_ONE, "_"), _aten.pow_.Scalar], _in_place),
    _aten.masked_fill.Scalar: _masked_fill,
    _aten.masked_fill.Tensor: _masked_fill,
    _aten.masked_fill_.Scalar: _masked_fill,
    _aten.masked_fill_.Tensor: _masked_fill,
    _aten.addmm.default: _addmm,
    _aten.index_copy_.default: _index_copy_,
    _aten.mm.default: _product(2),
    _aten.bmm.default: _product(3),
    MIXED_MM: _mixed_product,
    DECODE_ATTENTION: _decode_attention,
    ROW_PROGRAM: _row_program,
    ROW_PROGRAM_: _row_program_,
    _aten._log_softmax.default: _softmax,
    _aten._softmax.default: _softmax,
    _aten.cat.default: _cat,
    _aten.sum.dim_IntList: _reduced(_summed),
    _aten.mean.dim: _reduced(_averaged),
    _aten.amax.default: _reduced(lambda dtype: dtype),
    _aten.amin.default: _reduced(lambda dtype: dtype),
    _aten.any.dim: _reduced(_asked),
    _aten.all.dim: _reduced(_asked),
    _aten.sum.default: _reduced(_summed),
    _aten.mean.default: _reduced(_averaged),
    _aten.any.default: _reduced(_asked),
    _aten.all.default: _reduced(_asked),
    _aten.max.default: _reduced(lambda dtype: dtype),
    _aten.min.default: _reduced(lambda dtype: dtype),
    _aten.argmax.default: _of_largest,
    _aten.argmin.default: _of_largest,
    _aten.cumsum.default: _cumsum,
    _aten.native_layer_norm.default: _layer_norm,
}
