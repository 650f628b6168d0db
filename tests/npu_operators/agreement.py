"""What is asked of every operator: values are the reference's, fake tensors have their forms, captures agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

import airgraph
from airgraph.torch_internals.fake_tensors import FakeTensorMode

__all__ = ["assert_agrees", "assert_captured", "tolerance"]


def tolerance(dtype: torch.dtype) -> float:
    """Some roundings of a value of about 1."""
    return {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}.get(dtype, 0)


@torch.no_grad()
def assert_agrees(call: Callable[..., Any], reference: Callable[..., Any], *args: Any, slack: float = 1) -> None:
    """call: of the operator. reference: of the same arguments, with those of a floating type in float64.

    Both get copies, and what they write in them is compared as well as what they return.
    """
    given = _copies(args)
    got = call(*given)
    exact = tree_map_only(Tensor, lambda t: t.double() if t.is_floating_point() else t, _copies(args))
    expected = reference(*exact)
    results, values = tree_leaves((got, given)), tree_leaves((expected, exact))
    assert len(results) == len(values)
    for result, value in zip(results, values, strict=True):
        if isinstance(result, Tensor):
            bound = slack * tolerance(result.dtype if result.dtype != torch.float32 else _coarsest(args))
            torch.testing.assert_close(result.double(), value.double(), rtol=bound, atol=bound)
        else:
            assert result == value
    assert _forms(got) == _forms(_faked(call, args)), "a fake tensor's form is another"


@torch.no_grad()
def assert_captured(call: Callable[..., Any], *args: Any) -> None:
    """Two calls of one capture are eager's, bit for bit, and nothing runs uncaptured."""
    before = airgraph.explain().to_dict()["counters"]
    compiled = torch.compile(call, backend="airgraph", fullgraph=True, options={"kernels": "exact"})
    ours, theirs = _copies(args), _copies(args)
    for _ in range(2):
        results = tree_leaves((compiled(*ours), ours)), tree_leaves((call(*theirs), theirs))
        for got, expected in zip(*results, strict=True):
            torch.testing.assert_close(got, expected, rtol=0, atol=0)
    counters = airgraph.explain().to_dict()["counters"]
    assert (counters["captures"] - before["captures"], counters["replays"] - before["replays"]) == (1, 2), counters
    assert counters["eager_calls"] == before["eager_calls"]


def _copies(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tree_map_only(Tensor, lambda t: t.clone(), args)


def _coarsest(args: tuple[Any, ...]) -> torch.dtype:
    """Of what an operator computes in float32 from coarser arguments, some is rounded to them on the way."""
    types = {each.dtype for each in args if isinstance(each, Tensor)}
    return next((each for each in (torch.bfloat16, torch.float16) if each in types), torch.float32)


def _faked(call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    # A call may hold tensors of its own, such as a mask.
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        return call(*tree_map_only(Tensor, mode.from_tensor, args))


def _forms(results: Any) -> list[Any]:
    return [_form(each) if isinstance(each, Tensor) else each for each in tree_leaves(results)]


def _form(tensor: Tensor) -> Any:
    # Where there is one index, a stride leads nowhere.
    strides = tuple(stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1)
    return tuple(tensor.shape), strides, tensor.dtype
