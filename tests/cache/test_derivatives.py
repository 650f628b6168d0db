"""Transforms of torch.func, forward-mode derivatives and torch.jit.trace ask for more than values: nothing is lost."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from cached_functions import cached
from torch import Tensor
from torch.autograd import forward_ad

Function = Callable[[Tensor], Tensor]


def squares(x: Tensor) -> Tensor:
    return (x * x).sum()


def affine(x: Tensor) -> Tensor:
    return x * 2 + 1


def by_dual_numbers(function: Function) -> Tensor | None:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones(3), torch.full((3,), 2.0))
        return forward_ad.unpack_dual(function(dual)).tangent


DERIVATIVES: dict[str, tuple[Function, Callable[[Function], Any]]] = {
    "grad": (squares, lambda f: torch.func.grad(f)(torch.arange(3.0))),
    "grad of grad": (squares, lambda f: torch.func.grad(lambda x: torch.func.grad(f)(x).sum())(torch.arange(3.0))),
    "jacrev": (affine, lambda f: torch.func.jacrev(f)(torch.arange(3.0))),
    "jacfwd": (affine, lambda f: torch.func.jacfwd(f)(torch.arange(3.0))),
    "jvp": (affine, lambda f: torch.func.jvp(f, (torch.arange(3.0),), (torch.full((3,), 2.0),))),
    "vmap": (squares, lambda f: torch.func.vmap(f)(torch.arange(6.0).view(2, 3))),
    "dual numbers": (affine, by_dual_numbers),
}


@pytest.fixture(params=["compiled", "cached"])
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[Function], Function]]:
    with warnings.catch_warnings():
        # That the call is not cached.
        warnings.simplefilter("ignore")
        if request.param == "compiled":
            yield lambda function: torch.compile(function, backend="airgraph")
        else:
            yield lambda function: cached(function, tmp_path, strict=False)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("name", list(DERIVATIVES))
@pytest.mark.sampled
def test_derivatives_through_a_call(name: str, warm: bool, door: Callable[[Function], Function]) -> None:
    function, derive = DERIVATIVES[name]
    call = door(function)
    for _ in range(2 * warm):
        torch.testing.assert_close(call(torch.arange(3.0)), function(torch.arange(3.0)))
    torch.testing.assert_close(derive(call), derive(function))
    torch.testing.assert_close(call(torch.arange(3.0)), function(torch.arange(3.0)))


def test_a_parameter_with_a_tangent(door: Callable[[Function], Function]) -> None:
    model = torch.nn.Linear(3, 2)
    call = door(model.forward)
    x = torch.ones(1, 3)
    with torch.no_grad():
        call(x)
        with forward_ad.dual_level():
            weight = model.weight
            del model.weight
            model.weight = forward_ad.make_dual(weight.detach(), torch.ones(2, 3))
            tangent = forward_ad.unpack_dual(call(x)).tangent
    torch.testing.assert_close(tangent, torch.full((1, 2), 3.0))


def test_a_cached_call_is_no_constant_of_a_traced_module(tmp_path: Path) -> None:
    call = cached(affine, tmp_path, strict=False)
    call(torch.ones(3))
    with pytest.raises(RuntimeError, match=r"torch\.jit\.trace"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(call, (torch.ones(3),))


def test_a_cached_function_has_the_name_of_its_function(tmp_path: Path) -> None:
    call = cached(affine, tmp_path)
    assert (call.__name__, call.__qualname__, call.__module__) == ("affine", "affine", __name__)
