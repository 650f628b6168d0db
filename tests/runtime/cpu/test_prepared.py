"""Kernels that are prepared at capture give eager's bits, also when an output's memory is renewed between replays."""

from collections.abc import Callable, Sequence

import pytest
import torch

import airgraph
from airgraph.capture.ledger import ledger

UNARY = ["neg", "rsqrt", "sqrt", "exp", "log", "sigmoid", "tanh", "sin", "cos", "erf", "floor", "round", "trunc"]
UNARY += ["reciprocal", "relu", "nn.functional.silu", "nn.functional.mish"]
BINARY = ["add", "sub", "mul", "div", "maximum", "minimum"]
VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dense": lambda x: x,
    "transposed": lambda x: x.t(),
    "strided": lambda x: x[:, ::2],
    "empty": lambda x: x[:0],
}

Outputs = Sequence[torch.Tensor]


def _function(name: str) -> Callable[..., torch.Tensor]:
    found = torch
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _awkward(*shape: int) -> torch.Tensor:
    x = torch.randn(*shape)
    x.view(-1)[:4] = torch.tensor([float("nan"), float("inf"), -0.0, 0.0])
    return x


def _bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(-1).view(torch.uint8)


@torch.no_grad()
def _check(function: Callable[..., Outputs], make: Callable[[], Outputs], tier: str = "prepared") -> None:
    """Four calls; all outputs are held, so each replay writes memory that is new to the graph."""
    compiled = torch.compile(function, backend="airgraph", fullgraph=True, dynamic=False, options={"kernels": "exact"})
    held = []
    for _ in range(4):
        args = make()
        held.append((compiled(*args), function(*args)))
    for ours, theirs in held:
        for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert a.stride() == b.stride()
            assert torch.equal(_bits(a), _bits(b)), index
    (graph,) = (g for made in ledger.callables for g in made.captures)
    assert graph.device_graph.tiers == {tier: len(held[0][0])}
    assert airgraph.explain().to_dict()["counters"]["captures"] == 1


@pytest.mark.parametrize("view", VIEWS)
def test_unary(view: str) -> None:
    _check(lambda x: [_function(name)(VIEWS[view](x)) for name in UNARY], lambda: [_awkward(6, 10)])


@pytest.mark.parametrize("view", VIEWS)
def test_binary_with_broadcasting(view: str) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Outputs:
        x = VIEWS[view](x)
        return [_function(name)(x, y[: x.shape[-1]]) for name in BINARY]

    _check(function, lambda: [_awkward(6, 10), _awkward(10)])


def test_numbers() -> None:
    def function(x: torch.Tensor) -> Outputs:
        numbers = [2, 2.5, -1, 1e-6]
        return [_function(name)(x, n) for name in ("add", "sub", "mul", "div") for n in numbers] + [x + True]

    _check(function, lambda: [_awkward(33)])


def test_alpha() -> None:
    _check(lambda x, y: [torch.sub(x, y, alpha=0.1), torch.add(x, y, alpha=3)], lambda: [_awkward(33), _awkward(33)])


def test_powers() -> None:
    _check(lambda x: [x.pow(power) for power in (2, 3, 0.5, -1, 2.5)], lambda: [_awkward(6, 10)])


def test_powers_that_are_no_powers_are_left_to_aten() -> None:
    _check(lambda x: [x.pow(power) for power in (0, 1, 0.0)], lambda: [_awkward(6, 10)], "typed")


def test_other_dtypes_and_promotion_are_left_to_aten() -> None:
    def make() -> Outputs:
        x = torch.arange(5)
        return [x, x.to(torch.bfloat16), x.to(torch.float16), x.to(torch.float32)]

    _check(lambda i, b, h, f: [i + i, b + b, h + h, f + i, f * b, torch.neg(h)], make, "typed")


def test_mean() -> None:
    def function(x: torch.Tensor) -> Outputs:
        x = x.transpose(0, 1)
        dims = [0, -1, (0, 2), (1,), (0, 1, 2)]
        return [x.mean(dim, keepdim=keepdim) for dim in dims for keepdim in (False, True)]

    _check(function, lambda: [torch.randn(3, 5, 7)])


def test_mm() -> None:
    def function(*factors: torch.Tensor) -> Outputs:
        pairs = list(zip(factors[::2], factors[1::2], strict=True))
        return [torch.mm(a, b) for left, right in pairs for a in (left, left.t()) for b in (right, right.t())]

    # Square, so that each may be transposed; [1, 1] factors have one column and are left to ATen.
    _check(function, lambda: [torch.randn(n, n) for n in (2, 2, 16, 16, 33, 33)])


def test_mm_of_one_row_or_one_inner_element() -> None:
    _check(
        lambda row, square, column: [torch.mm(row, square), torch.mm(row, square.t()), torch.mm(column, row)],
        lambda: [torch.randn(1, 24), torch.randn(24, 24), torch.randn(5, 1)],
    )


def test_mm_that_blas_does_not_take_is_left_to_aten() -> None:
    _check(
        lambda a, b, c: [torch.mm(a, b), torch.mm(c[:, ::2], c[::2])],
        lambda: [torch.randn(4, 3), torch.randn(3, 1), torch.randn(6, 6)[:, :6]],
        "typed",
    )
