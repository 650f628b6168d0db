"""Arguments of one shape that lie in memory in different ways, and operators and programs that can tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["LAYOUTS", "PROGRAMS", "read_rows", "strides_of"]


def _numbers(device: str, *shape: int) -> Tensor:
    return torch.arange(1.0, 1 + torch.Size(shape).numel(), device=device).view(shape)


# [4, 6] each.
LAYOUTS: dict[str, Callable[[str], Tensor]] = {
    "dense": lambda device: _numbers(device, 4, 6),
    "turned": lambda device: _numbers(device, 6, 4).t(),
    "some rows": lambda device: _numbers(device, 9, 6)[3:7],
    "other rows": lambda device: _numbers(device, 9, 6)[5:9],
    "every other row": lambda device: _numbers(device, 8, 6)[::2],
    "every other column": lambda device: _numbers(device, 4, 12)[:, ::2],
    "first columns": lambda device: _numbers(device, 4, 9)[:, :6],
    "a box": lambda device: _numbers(device, 9, 13)[2:6, 3:9],
    "a turned box": lambda device: _numbers(device, 12, 9)[2:8, 3:7].t(),
    "one row expanded": lambda device: _numbers(device, 1, 6).expand(4, 6),
    "one column expanded": lambda device: _numbers(device, 4, 1).expand(4, 6),
    "one number expanded": lambda device: _numbers(device, 1, 1).expand(4, 6),
    "windows": lambda device: _numbers(device, 40).as_strided((4, 6), (2, 1), 3),
    "begin of a longer one": lambda device: _numbers(device, 30)[:24].view(4, 6),
    "end of a longer one": lambda device: _numbers(device, 30)[6:].view(4, 6),
}


@torch.library.custom_op("airgraph_strides::read_rows", mutates_args=())
def read_rows(x: Tensor, stride: int, count: int) -> Tensor:
    """As a kernel does that is given an address and a stride."""
    return x.as_strided((count, 2), (stride, 1), x.storage_offset()).clone()


@read_rows.register_fake
def _(x: Tensor, stride: int, count: int) -> Tensor:
    return x.new_empty(count, 2)


@torch.library.custom_op("airgraph_strides::add_to_rows", mutates_args=("x",))
def add_to_rows(x: Tensor, stride: int, count: int) -> None:
    x.as_strided((count, 2), (stride, 1), x.storage_offset()).add_(5)


@add_to_rows.register_fake
def _(x: Tensor, stride: int, count: int) -> None:
    return None


@torch.library.custom_op("airgraph_strides::strides_of", mutates_args=())
def strides_of(x: Tensor) -> Tensor:
    found = x.new_zeros(x.dim())
    for place, stride in zip(found, x.stride(), strict=True):
        place.fill_(stride)
    return found


@strides_of.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.dim())


def stride_as_a_number(x: Tensor) -> Tensor:
    return x * x.stride(0) + x.stride(1)


def stride_as_a_size(x: Tensor) -> Tensor:
    return torch.zeros(x.stride(0) * 2 + x.stride(1), device=x.device)


def stride_of_a_view(x: Tensor) -> Tensor:
    return x * x.t().stride(0) + x[1:].stride(0)


def offset_as_a_number(x: Tensor) -> Tensor:
    return x * 2 + x.storage_offset()


def strides_of_what_it_makes(x: Tensor) -> tuple[Tensor, ...]:
    made, like, copy = x + 1, torch.empty_like(x).fill_(1), x.clone()
    return made * made.stride(0), like * like.stride(1), copy * copy.stride(0)


def operator_given_a_stride(x: Tensor) -> Tensor:
    return read_rows(x, x.stride(0), x.shape[0])


def operator_given_a_stride_of_a_view(x: Tensor) -> tuple[Tensor, ...]:
    part = x[1:]
    return read_rows(part, part.stride(0), part.shape[0]), read_rows(x.t(), x.stride(0), x.shape[0])


def operator_that_asks_for_strides(x: Tensor) -> tuple[Tensor, ...]:
    return strides_of(x), strides_of(x.t()), strides_of(x[1:, 2:]), strides_of(x.unsqueeze(1))


def operator_given_what_it_makes(x: Tensor) -> tuple[Tensor, ...]:
    made = (x * 2).relu()
    return strides_of(made), read_rows(made, made.stride(0), 2)


def operator_that_writes(x: Tensor) -> Tensor:
    add_to_rows(x, x.stride(0), x.shape[0])
    return x * 2


def as_strided_with_its_own(x: Tensor) -> Tensor:
    return x.as_strided(x.shape, x.stride(), x.storage_offset()) * 2


def as_strided_from_the_start(x: Tensor) -> Tensor:
    return torch.as_strided(x, (2, 2), (1, 1), 0) * 2


def as_strided_without_an_offset(x: Tensor) -> Tensor:
    return torch.as_strided(x, (2, 2), (1, 1)) * 2


def as_strided_copies(x: Tensor) -> Tensor:
    return torch.as_strided_copy(x, (2, 2), (1, 1), 1)


def as_strided_behind_split(x: Tensor) -> tuple[Tensor, ...]:
    first, second = x.split(2)
    return second.as_strided((2, 2), (1, 1)) * 2, second.as_strided((2,), (1,), 0) + 1, first * 1.5


def as_strided_behind_chunk(x: Tensor) -> Tensor:
    return x.chunk(2, 1)[1].as_strided((2,), (1,), 1) * 3


def as_strided_behind_unbind(x: Tensor) -> tuple[Tensor, ...]:
    return x.unbind(0)[1].as_strided((3,), (1,)) * 2, x.unbind(1)[2].as_strided((2,), (1,), 1) * 2


def as_strided_behind_views(x: Tensor) -> tuple[Tensor, ...]:
    return x.t().as_strided((3,), (1,), 0) * 2, x[1:].unsqueeze(0).as_strided((2,), (1,)) * 3, x.detach()[2] * 2


def unfolded(x: Tensor) -> tuple[Tensor, ...]:
    return x.unfold(0, 2, 1) * 2, x.t().unfold(1, 3, 1).sum(-1)


def made_with_the_same_strides(x: Tensor) -> Tensor:
    return torch.empty_strided(x.shape, x.stride(), device=x.device).fill_(2) + x


def seen_as_integers(x: Tensor) -> Tensor:
    return x.view(torch.int32) + 1


def written_where_it_is_dense(x: Tensor) -> Tensor:
    """The argument itself is written where it is contiguous, and a copy of it where not."""
    dense = x.contiguous()
    dense.add_(1)
    return dense * 2


def written_where_it_can_be_viewed(x: Tensor) -> Tensor:
    flat = x.reshape(-1)
    flat.mul_(2)
    return flat + 1


def another_branch_where_it_is_dense(x: Tensor) -> Tensor:
    return x * 2 if x.is_contiguous() else x * 3


PROGRAMS: dict[str, Callable[..., Any]] = {
    program.__name__: program
    for program in (
        stride_as_a_number,
        stride_as_a_size,
        stride_of_a_view,
        offset_as_a_number,
        strides_of_what_it_makes,
        operator_given_a_stride,
        operator_given_a_stride_of_a_view,
        operator_that_asks_for_strides,
        operator_given_what_it_makes,
        operator_that_writes,
        as_strided_with_its_own,
        as_strided_from_the_start,
        as_strided_without_an_offset,
        as_strided_copies,
        as_strided_behind_split,
        as_strided_behind_chunk,
        as_strided_behind_unbind,
        as_strided_behind_views,
        unfolded,
        made_with_the_same_strides,
        seen_as_integers,
        written_where_it_is_dense,
        written_where_it_can_be_viewed,
        another_branch_where_it_is_dense,
    )
}
