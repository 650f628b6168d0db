"""Rules for the forms of results, a family of operators each: see `result_forms`.

A rule is given the operator, its arguments by position with all tensors on the device meta, and the others by name. It
returns tensors of the device meta; None, or an error of torch's, where it does not say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from airgraph.runtime.engine.loading import engine

__all__ = [
    "addmm",
    "asked",
    "averaged",
    "cat",
    "cumsum",
    "in_place",
    "index_copy_",
    "layer_norm",
    "like",
    "masked_fill",
    "of_largest",
    "of_one",
    "of_operands",
    "product",
    "reduced",
    "softmax",
    "summed",
]

_aten = torch.ops.aten
_META = torch.device("meta")


def of_operands(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    operands = [each if isinstance(each, torch.Tensor) else _NUMBER for each in args]
    dtype = _dtype_of(op, args, kwargs)
    # The condition of `where` stays what it is.
    if _may_be_cast(args[1:] if op is _aten.where.self else args, dtype):
        return None
    form = engine().pointwise_form(operands)
    return None if form is None else _new(form, dtype)


def of_one(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
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


def in_place(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
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


def like(tensor: torch.Tensor, shape: Sequence[int], dtype: torch.dtype | None = None) -> torch.Tensor:
    return tensor.new_empty(shape, dtype=dtype or tensor.dtype)


def addmm(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    added, a, b = args[:3]
    if not added.dtype == a.dtype == b.dtype:
        return None
    made = product(2)(op, (a, b), kwargs)
    return None if made is None or _broadcast(added.shape, made.shape) != made.shape else made


def product(dims: int) -> Callable[..., Any]:
    """Of two matrices, or with 3 dimensions of two rows of as many."""

    def rule(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        a, b = args
        alike = a.dtype == b.dtype and a.dim() == b.dim() == dims and a.shape[:-2] == b.shape[:-2]
        return like(a, (*a.shape[:-1], b.shape[-1])) if alike and a.shape[-1] == b.shape[-2] else None

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


def softmax(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    x, dim, half_to_float = args
    if not -x.dim() <= dim < x.dim() or not x.is_floating_point() or half_to_float:
        return None
    return like(x, x.shape)


def cat(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
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
    return like(first, [*first.shape[:dim], sum(each.shape[dim] for each in tensors), *first.shape[dim + 1 :]])


def _is_only_contiguous(tensor: torch.Tensor) -> bool:
    """Whether it is dense in the order of its dimensions, and not in another order that the result could take too."""
    other = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    return tensor.is_contiguous() and (other is None or not tensor.is_contiguous(memory_format=other))


def reduced(dtype_of: Callable[[torch.dtype], torch.dtype | None]) -> Callable[..., Any]:
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
        return like(x, sizes, dtype)

    return rule


def summed(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.int64


def averaged(dtype: torch.dtype) -> torch.dtype | None:
    return dtype if dtype.is_floating_point else None


def asked(dtype: torch.dtype) -> torch.dtype:
    return torch.uint8 if dtype == torch.uint8 else torch.bool


def of_largest(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    # Of nothing it is an error, and of complex numbers too.
    is_known = args[0].numel() and not args[0].is_complex()
    return reduced(lambda dtype: torch.int64)(op, args, kwargs) if is_known else None


def cumsum(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    x, dim = args[:2]
    if not -x.dim() <= dim < x.dim():
        return None
    return like(x, x.shape, kwargs.get("dtype") or summed(x.dtype))


def layer_norm(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
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
    return like(x, x.shape), like(x, statistics), like(x, statistics)


def index_copy_(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    x, dim, index, source = args
    if not -x.dim() <= dim < x.dim() or index.dim() != 1 or index.dtype != torch.int64 or x.dtype != source.dtype:
        return None
    sizes = list(x.shape)
    sizes[dim] = index.shape[0]
    return x if list(source.shape) == sizes else None


def masked_fill(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    x, mask, value = args
    if mask.dtype != torch.bool or (isinstance(value, torch.Tensor) and value.dim()):
        return None
    shape = _broadcast(x.shape, mask.shape)
    if op._schema.is_mutable:
        return x if shape == x.shape else None
    return like(x, shape)
