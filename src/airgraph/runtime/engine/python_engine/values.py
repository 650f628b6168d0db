"""Tensors and their memory, and what kernels take from the settings of the process."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from airgraph.program.inputs import span_nbytes
from airgraph.torch_internals import dispatcher
from airgraph.torch_internals.backends import serve_private_backend
from airgraph.torch_internals.dispatcher import negated_view
from airgraph.torch_internals.settings import kernel_settings


def settings() -> tuple[Any, ...]:
    """What kernels take from the settings of the process."""
    backends = torch.backends
    return (
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        *kernel_settings(),
        backends.cuda.flash_sdp_enabled(),
        backends.cuda.mem_efficient_sdp_enabled(),
        backends.cuda.math_sdp_enabled(),
        backends.cudnn.allow_tf32,
        backends.cudnn.deterministic,
        _matmul_precision(),
    )


def _matmul_precision() -> str:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        # It refuses to answer once a precision has been set for a single backend.
        return "several"


def is_foreign(tensor: torch.Tensor) -> bool:
    """Whether a tensor is something else, or more, than elements in memory of its device."""
    return (
        dispatcher.has_key(tensor, "Python", "Functionalize", "ZeroTensor")
        or dispatcher.is_wrapped_by_functorch(tensor)
        or tensor.layout is not torch.strided
        or dispatcher.has_tangent(tensor)
    )


def share_storage(a: torch.Tensor, b: torch.Tensor) -> bool:
    return dispatcher.alias_one_storage(a, b)


def move_into_huge_pages(tensors: list[torch.Tensor]) -> tuple[int, int] | None:
    """None: Python cannot move the memory of a tensor."""
    return None


def first_overlap(args: list[Any], written: list[int]) -> tuple[int, int] | None:
    """Of the arguments at `written` the first whose memory lies among another's, and that one."""
    spans = {i: _span(arg) for i, arg in enumerate(args) if isinstance(arg, torch.Tensor) and not is_foreign(arg)}
    for target in written:
        for other, (begin, end) in spans.items():
            if target in spans and other != target and begin < spans[target][1] and spans[target][0] < end:
                return target, other
    return None


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    begin = tensor.data_ptr() if tensor.numel() else 0
    return begin, begin + span_nbytes(tensor)


def unallocated(sizes: list[int], strides: list[int], dtype: torch.dtype) -> torch.Tensor:
    # Without the native engine it has memory of its own from the start.
    return torch.empty_strided(sizes, strides, dtype=dtype, device="cpu")


def pointwise_form(operands: list[torch.Tensor]) -> None:
    """Not known without the native engine."""


def serve_private_device(target: str) -> None:
    """Memory of the target's is made as with the native engine; generators and pinned memory of the device are not."""
    serve_private_backend()


def resize_unallocated(tensor: torch.Tensor, nbytes: int) -> None:
    tensor.untyped_storage().resize_(nbytes)


def allocate(tensor: torch.Tensor) -> None:
    """Nothing to do: see `unallocated`."""


def whole(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)


def bytes_at(address: int, nbytes: int) -> torch.Tensor:
    if nbytes == 0 or address == 0:
        return torch.empty(nbytes, dtype=torch.uint8, device="cpu")
    return torch.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype=torch.uint8)


def view_at(
    data: torch.Tensor,
    *,
    dtype: torch.dtype,
    sizes: list[int],
    strides: list[int],
    offset: int,
    conj: bool,
    neg: bool,
) -> torch.Tensor:
    tensor = torch.empty(0, dtype=dtype, device="cpu").set_(data.untyped_storage(), offset, sizes, strides)
    if conj:
        tensor = torch.conj(tensor)
    return negated_view(tensor) if neg else tensor


def has_kernel(name: str, overload: str) -> bool:
    """Operators are called as they are."""
    return False
