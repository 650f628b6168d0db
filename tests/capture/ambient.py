"""What the tests of settings around calls share: programs that settings matter to, and comparison with eager."""

from contextlib import AbstractContextManager as Context
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["attention", "autocast", "distances", "inputs", "products", "same", "with_custom_operator"]


def distances(x: Tensor, y: Tensor) -> Tensor:
    return torch.cdist(x, y)


def products(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return (
        x @ y.t(),
        torch.nn.functional.linear(x, y),
        torch.einsum("ij,kj->ik", x, y),
        torch.addmm(x @ y.t(), x, y.t()),
    )


def attention(x: Tensor, y: Tensor) -> Tensor:
    q, k = x.view(1, 2, -1, x.shape[-1]), y.view(1, 2, -1, y.shape[-1])
    return nn.functional.scaled_dot_product_attention(q, k, k)


@torch.library.custom_op("airgraph_ambient::multiplies", mutates_args=())
def multiplies(x: Tensor, y: Tensor) -> Tensor:
    return x @ y.t()


multiplies.register_fake(lambda x, y: x.new_empty(x.shape[0], y.shape[0]))


def with_custom_operator(x: Tensor, y: Tensor) -> Tensor:
    return multiplies(x, y).relu()


def inputs() -> tuple[Tensor, Tensor]:
    """Large enough for cdist to multiply matrices within its kernel."""
    return torch.randn(40, 32), torch.randn(40, 32)


def autocast(dtype: torch.dtype = torch.bfloat16, enabled: bool = True) -> Context:
    return torch.autocast("cpu", dtype, enabled)


def same(ours: Any, theirs: Any) -> None:
    """With their dtypes."""
    for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (ours, theirs)), strict=True):
        assert a.dtype == b.dtype, (a.dtype, b.dtype)
        torch.testing.assert_close(a, b)
