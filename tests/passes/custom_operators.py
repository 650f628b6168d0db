"""Custom operators that write their arguments."""

import torch
from torch import Tensor

__all__ = ["add_and_double", "add_into", "add_one_and_add", "add_to_all", "two_results"]


@torch.library.custom_op("airgraph_passes::add_and_double", mutates_args=("a", "b"))
def add_and_double(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    a.add_(x)
    b.mul_(2)
    return a + b


add_and_double.register_fake(lambda a, b, x: torch.empty_like(a))


@torch.library.custom_op("airgraph_passes::add_into", mutates_args=("a",))
def add_into(a: Tensor, x: Tensor) -> None:
    a.add_(x)


add_into.register_fake(lambda a, x: None)


@torch.library.custom_op("airgraph_passes::two_results", mutates_args=("a",))
def two_results(a: Tensor) -> tuple[Tensor, Tensor]:
    a.mul_(3)
    return a + 1, a + 2


two_results.register_fake(lambda a: (torch.empty_like(a), torch.empty_like(a)))


@torch.library.custom_op("airgraph_passes::add_to_all", mutates_args=("tensors",))
def add_to_all(tensors: list[Tensor], x: Tensor) -> None:
    for tensor in tensors:
        tensor.add_(x)


add_to_all.register_fake(lambda tensors, x: None)


@torch.library.custom_op("airgraph_passes::add_one_and_add", mutates_args=("a",))
def add_one_and_add(a: Tensor, x: Tensor) -> None:
    a.add_(1)
    a.add_(x.clone())


add_one_and_add.register_fake(lambda a, x: None)
