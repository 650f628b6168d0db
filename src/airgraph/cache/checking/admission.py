"""Whether a graph is right for arguments of these shapes, dtypes and devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from airgraph.cache.format.manifest import CachedInput, lazy_of
from airgraph.cache.format.shape_guard import evaluate
from airgraph.errors import UnsupportedExpression
from airgraph.program.inputs import InputRole, span_nbytes

__all__ = ["why_not_admitted"]

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def why_not_admitted(inputs: Sequence[CachedInput], shape_guards: Sequence[str], args: Sequence[Any]) -> str | None:
    """Why the graph does not serve these arguments, in words, or None. Looks at no values but numbers'."""
    try:
        return _why_not(inputs, shape_guards, args)
    except UnsupportedExpression as error:
        return str(error)


def _why_not(inputs: Sequence[CachedInput], shape_guards: Sequence[str], args: Sequence[Any]) -> str | None:
    sizes: dict[str, int] = {}
    # First what has symbols of its own, then what is worked out from them.
    for compare in (_mismatch, _mismatch_of_expressions):
        for each, arg in zip(inputs, args, strict=True):
            reason = compare(each, arg, sizes)
            if reason is not None:
                return f"{each.plan.source}: {reason}"
    # Strides are expressions over all symbols, so they come after.
    for each, arg in zip(inputs, args, strict=True):
        if each.is_tensor:
            for stride, have in zip(each.stride, arg.stride(), strict=True):
                # Some have symbols of their own.
                if isinstance(stride, str) and stride.isidentifier():
                    sizes.setdefault(stride, have)
            expected = [_known(stride, sizes) for stride in each.stride]
            # Of a dimension of size one too, since tracing may have asked for it.
            if list(arg.stride()) != expected:
                return f"{each.plan.source}: expected strides {expected}, got {list(arg.stride())}"
            # One that was a plain number to Dynamo decided nothing: it does not trace what asks for it.
            reason = _bind(each.offset, int(arg.storage_offset()), sizes) if isinstance(each.offset, str) else None
            if reason is not None:
                return f"{each.plan.source}: offset in its storage: {reason}"
    broken = next((text for text in shape_guards if not evaluate(text, sizes)), None)
    if broken is not None:
        return f"{broken} does not hold for {sizes}"
    return _overlap(inputs, args)


def _mismatch(each: CachedInput, arg: Any, sizes: dict[str, int]) -> str | None:
    if not each.is_tensor:
        if type(arg) is not int:
            return f"expected an int, got {type(arg).__name__}"
        return _bind(each.symbol, arg, sizes) if _is_plain(each.symbol) else None
    if not isinstance(arg, _PLAIN) or (type(arg) not in _PLAIN and not isinstance(arg, torch.nn.Buffer)):
        return f"expected a tensor, got {type(arg).__name__}"
    if arg.layout is not torch.strided:
        return f"expected a strided tensor, got {arg.layout}"
    if (arg.dtype, arg.device, arg.dim()) != (each.dtype, each.device, len(each.shape)):
        want = f"{each.dtype} of {len(each.shape)} dimensions on {each.device}"
        return f"expected {want}, got {arg.dtype} of {arg.dim()} on {arg.device}"
    if lazy_of(arg) != each.lazy:
        return f"expected a tensor that is lazily '{each.lazy}', got one that is '{lazy_of(arg)}'"
    for dim, (want_size, size) in enumerate(zip(each.shape, arg.shape, strict=True)):
        reason = _bind(want_size, size, sizes) if _is_plain(want_size) else None
        if reason is not None:
            return f"size of dimension {dim}: {reason}"
    return None


def _mismatch_of_expressions(each: CachedInput, arg: Any, sizes: dict[str, int]) -> str | None:
    if not each.is_tensor:
        return None if _is_plain(each.symbol) else _bind(each.symbol, arg, sizes)
    for dim, (want_size, size) in enumerate(zip(each.shape, arg.shape, strict=True)):
        reason = None if _is_plain(want_size) else _bind(want_size, size, sizes)
        if reason is not None:
            return f"size of dimension {dim}: {reason}"
    return None


def _is_plain(size: int | str | None) -> bool:
    """Whether it is a number or one symbol."""
    return not isinstance(size, str) or size.isidentifier()


def _bind(want: int | str | None, have: int, sizes: dict[str, int]) -> str | None:
    """Gives a symbol its value, or compares with the one it has."""
    if isinstance(want, str) and want.isidentifier() and want not in sizes:
        sizes[want] = have
        return None
    known = _known(want, sizes)
    return None if known == have else f"expected {known}{f' ({want})' if isinstance(want, str) else ''}, got {have}"


def _known(size: int | str | None, sizes: dict[str, int]) -> Any:
    return evaluate(size, sizes) if isinstance(size, str) else size


def _overlap(inputs: Sequence[CachedInput], args: Sequence[Any]) -> str | None:
    """A tensor that is written must share no memory with another: the graph was traced without."""
    tensors = [(arg.data_ptr(), i, arg) for i, arg in enumerate(args) if isinstance(arg, torch.Tensor) and arg.numel()]
    ranges = sorted((start, start + span_nbytes(arg), i) for start, i, arg in tensors)
    reach, owner = 0, -1
    for start, end, index in ranges:
        if start < reach:
            pair = inputs[owner], inputs[index]
            if any(each.plan.role is InputRole.MUTATED for each in pair):
                return f"{pair[0].plan.source} and {pair[1].plan.source} share memory, and one of them is written"
        if end > reach:
            reach, owner = end, index
    return None
