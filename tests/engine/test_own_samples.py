"""Kernels of our own over the samples that PyTorch tests its operators with: never further from float64 than eager's.

By more than rounding, as `docs/kernels.md` says: no number by more than two roundings, of the operands and the result,
and all numbers of an operator together, by the root of their mean square, by no more than chance.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import pytest
import torch
from described_operators import operators
from own_calls import by_engine, further_off
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from airgraph.program.row_programs import CASTS, run_row_program
from airgraph.runtime.engine.loading import engine_status

pytestmark = pytest.mark.skipif(not engine_status().loaded, reason="the native engine is not here")

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
# One of the result, and one of what lies between.
ROUNDINGS = 2
# Of two results that are rounded equally well one is nearer by chance.
CHANCE = 1.02
ATTENTION = "nn.functional.scaled_dot_product_attention"
# What of PyTorch's table leads to which of the operators that kernels of ours serve.
OPERATORS = {
    "mm": "aten::mm",
    "addmm": "aten::addmm",
    "bmm": "aten::bmm",
    "baddbmm": "aten::baddbmm",
    "add": "aten::add.Tensor",
    "sub": "aten::sub.Tensor",
    "mul": "aten::mul.Tensor",
    "div": "aten::div.Tensor",
    "neg": "aten::neg",
    "rsqrt": "aten::rsqrt",
    "square": "aten::pow.Tensor_Scalar",
    "mean": "aten::mean.dim",
    "argmax": "aten::argmax",
    "index_select": "aten::index_select",
    "softmax": "aten::_softmax",
    "nn.functional.layer_norm": "aten::native_layer_norm",
    "nn.functional.gelu": "aten::gelu",
    "nn.functional.silu": "aten::silu",
    "nn.functional.relu": "aten::relu",
    "nn.functional.embedding": "aten::embedding",
    ATTENTION: "airgraph::decode_attention",
}
PRODUCTS = tuple(OPERATORS)[:4]
# Of numbers x and a row of weights.
ROW_PROGRAMS = {
    "a norm": "float32 0; square 2; mean 3; add 4 #1e-06; rsqrt 5; mul 2 6; {dtype} 7; mul 1 8",
    "SwiGLU": "silu 0; mul 2 1",
    "a rotation": "mul 0 1; neg 0; cat 3 2; cat 2 0; add 4 5",
    "a chain": "div 0 #30.0; sub 2 1; relu 3; add 4 0",
}

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


class Calls(TorchDispatchMode):
    """Keeps the calls of one operator that what runs in it makes."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.made = name, list[Call]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.name() == self.name:
            self.made.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


class Found:
    """What one operator gave in one type, beside eager's and the exact values."""

    def __init__(self) -> None:
        self.calls = 0
        self.all: tuple[list[Tensor], list[Tensor], list[Tensor]] = ([], [], [])
        # Roundings, at most.
        self.further_by = 0.0

    def add(self, ours: Tensor, eagers: Tensor, exact: Tensor, changed: Tensor) -> None:
        """changed: the exact values of operands that are rounded once more."""
        self.calls += 1
        if not ours.is_floating_point():
            assert torch.equal(ours, eagers)
            return
        assert torch.equal(ours.isfinite(), eagers.isfinite())
        is_number = eagers.isfinite() & exact.isfinite()
        ours, eagers, exact, changed = (each[is_number] for each in (ours, eagers, exact, changed))
        if not ours.numel():
            return
        further = (ours.double() - exact).abs() - (eagers.double() - exact).abs()
        form = torch.finfo(ours.dtype)
        rounding = form.eps * exact.abs().max() + (changed - exact).abs().max() + form.smallest_normal
        self.further_by = max(self.further_by, float(further.max() / rounding))
        for kept, each in zip(self.all, (ours, eagers, exact), strict=True):
            kept.append(each)


def exactly(function: Callable[..., Any], *args: Any) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """What a function gives in float64, and of operands that another rounding would make a unit larger or smaller."""
    generator = torch.Generator().manual_seed(0)

    def wide(value: Tensor, is_changed: bool) -> Tensor:
        if not value.is_floating_point():
            return value
        changes = torch.randint(2, value.shape, generator=generator) * 2 - 1
        return value.double() * (1 + changes * torch.finfo(value.dtype).eps if is_changed else 1)

    found = []
    for is_changed in (False, True):
        results = function(*tree_map_only(Tensor, functools.partial(wide, is_changed=is_changed), args))
        found.append(results if isinstance(results, tuple) else (results,))
    return found[0], found[1]


def variants(call: Call) -> Iterator[Call]:
    """Of a product also the one with its matrix as a Linear has it, one row of it, and without numbers for the sum."""
    yield call
    func, args, _ = call
    if func.name().removeprefix("aten::") in PRODUCTS:
        *bias, left, right = args
        right = right.mT.contiguous().mT
        yield func, (*bias, left, right), {}
        yield func, (*(each[..., :1, :] if each.dim() > 1 else each for each in bias), left[..., :1, :], right), {}


def attention_of(sample: Any) -> Call | None:
    query, (key, value), given = sample.input, sample.args, sample.kwargs
    mask, scale = given.get("attn_mask"), given.get("scale") or query.shape[-1] ** -0.5
    is_served = query.dim() == 4 and query.shape[-2] <= 8 and key.shape[-1] == value.shape[-1]
    if given.get("dropout_p") or given.get("is_causal") or not is_served or (mask is not None and mask.dim() < 2):
        return None
    return torch.ops.airgraph.decode_attention.default, (query, key, value, mask, scale), {}


def calls_of(op: Any, name: str, dtype: torch.dtype, times: int) -> Iterator[tuple[Any, list[Call]]]:
    """The samples of an operator, drawn so many times, and what they call."""
    torch.manual_seed(0)
    for sample in chain(*(op.sample_inputs("cpu", dtype, requires_grad=False, set_seed=False) for _ in range(times))):
        if op.name == ATTENTION:
            attention = attention_of(sample)
            yield sample, [] if attention is None else [attention]
            continue
        with Calls(name) as calls:
            op.op(sample.input, *sample.args, **sample.kwargs)
        yield sample, [each for call in calls.made for each in variants(call)]


def compare(found: Found, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    name, _, overload = func.name().partition(".")
    results = func(*args, **kwargs)
    eagers = results if isinstance(results, tuple) else (results,)
    outs = tuple(map(torch.empty_like, eagers))
    if 0 in eagers[0].shape or by_engine(name, *args, out=outs, overload=overload, **kwargs) != "own":
        return
    in_double = {key: torch.float64 if value in FLOATS else value for key, value in kwargs.items()}
    for each in zip(outs, eagers, *exactly(functools.partial(func, **in_double), *args), strict=True):
        found.add(*each)


def compare_programs(found: Callable[[str], Found], x: Tensor) -> None:
    weight = torch.linspace(-2, 2, x.shape[-1]).to(x.dtype)
    for name, text in ROW_PROGRAMS.items():
        program = text.format(dtype=CASTS[x.dtype])
        eagers = run_row_program([x, weight], program)
        out = torch.empty_like(eagers, memory_format=torch.contiguous_format)
        assert by_engine("airgraph::row_program", x, [weight], program, out=out) == "own"
        function = functools.partial(run_row_program, program=program, call=without_casts)
        found(name).add(out, eagers, *chain(*exactly(function, [x, weight])))


def without_casts(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0] if op is torch.ops.aten._to_copy.default else op(*args, **kwargs)


def compare_int8(found: Found, left: Tensor, right: Tensor) -> None:
    """A product whose matrix is of int8."""
    generator = torch.Generator().manual_seed(0)
    low = torch.randint(-128, 128, right.mT.shape, dtype=torch.int8, generator=generator).t()
    scale = torch.rand(right.shape[1], generator=generator).to(left.dtype)
    for factor in (None, scale):
        compare(found, torch.ops.airgraph.mixed_mm.default, (left, low, factor), {})


@torch.no_grad()
def test_no_number_is_further_from_float64_than_eagers_by_more_than_rounding(request: pytest.FixtureRequest) -> None:
    times = 4 if request.config.getoption("--full-sweep") else 1
    table = {(op.name, op.variant_test_name): op for op in operators()}
    found: dict[tuple[str, torch.dtype], Found] = defaultdict(Found)
    for name, called in OPERATORS.items():
        op = table.get((name, "")) or table[name, "no_rounding_mode"]
        for dtype in FLOATS:
            for sample, calls in calls_of(op, called, dtype, times):
                for call in calls:
                    compare(found[called, dtype], *call)
                if name == "mm":
                    compare_int8(found["airgraph::mixed_mm", dtype], sample.input, sample.args[0])
                if name in ("nn.functional.layer_norm", "softmax") and 0 not in (sample.input.shape or (0,)):
                    compare_programs(lambda each, dtype=dtype: found[each, dtype], sample.input)
    expected = {
        (each, dtype) for each in (*OPERATORS.values(), "airgraph::mixed_mm", *ROW_PROGRAMS) for dtype in FLOATS
    }
    # Of 16 bits gelu is ATen's.
    expected -= {("aten::gelu", torch.bfloat16), ("aten::gelu", torch.float16)}
    assert {key for key, each in found.items() if each.calls} == expected
    far = {key: (each.further_by, further_off(*each.all)) for key, each in found.items() if each.all[0]}
    assert not {key: both for key, both in far.items() if both[0] > ROUNDINGS or both[1] > CHANCE}
