# SPDX-License-Identifier: Apache-2.0
"""What is asked of every operator: a call, the recipes of its arguments, and the element types to try."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from operator_arguments import T, Values, depends_on_dtype, index, mask

HALVES = (torch.float16, torch.bfloat16)
FLOATS = (torch.float32, *HALVES)
INTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
SIGNED = (torch.int64, torch.int32)
NUMBERS = (*FLOATS, *SIGNED)
BOOL = (torch.bool,)


@dataclass(frozen=True)
class Case:
    """One call, made on the CPU and on the device with the same arguments; results and arguments must agree after."""

    name: str
    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    dtypes: tuple[torch.dtype, ...] = FLOATS


CASES: list[Case] = []


def case(name: str, call: Callable[..., Any], *arguments: Any, dtypes: tuple[torch.dtype, ...] = FLOATS) -> None:
    CASES.append(Case(name, call, arguments, dtypes if depends_on_dtype(arguments) else dtypes[:1]))


ONE = (
    ("dense", T((3, 4))),
    ("scalar", T(())),
    ("empty", T((0, 4))),
    ("strided", T((3, 4), layout="strided")),
    ("expanded", T((3, 4), layout="expanded")),
)
PAIRS = (
    ("dense", T((3, 4)), T((3, 4), 1, 4)),
    ("row", T((3, 4)), T((4,), 1, 4)),
    ("column", T((2, 1, 4)), T((3, 1), 1, 4)),
    ("scalar", T((3, 4)), T((), 1, 4)),
    ("empty", T((0, 4)), T((1, 4), 1, 4)),
    ("strided", T((3, 4), layout="strided"), T((3, 4), 1, 4, layout="strided")),
)
WRITABLE_PAIRS = tuple(pair for pair in PAIRS if pair[0] != "column")


def unary(name: str, dtypes: tuple[torch.dtype, ...] = FLOATS, low: float = -3, high: float = 3) -> None:
    """The functional, out and in-place forms of torch.<name>, over layouts."""
    function = getattr(torch, name)
    for label, recipe in ONE:
        operand = T(recipe.shape, low, high, recipe.layout)
        case(f"{name}-{label}", function, operand, dtypes=dtypes)
    operand = T((3, 4), low, high, "strided")
    if hasattr(torch.Tensor, f"{name}_"):
        in_place = getattr(torch.Tensor, f"{name}_")
        case(f"{name}_", in_place, operand, dtypes=tuple(d for d in dtypes if d.is_floating_point) or dtypes)

    def to_out(self: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return function(self, out=out)

    out_dtype = function(torch.ones(1, dtype=dtypes[0])).dtype
    case(f"{name}-out", to_out, operand, T((3, 4), layout="strided", dtype=out_dtype), dtypes=dtypes[:1])


def binary(name: str, dtypes: tuple[torch.dtype, ...] = NUMBERS, *, scalar: bool = True, in_place: bool = True) -> None:
    """The functional, scalar, out and in-place forms of torch.<name>, over broadcasts and layouts."""
    function = getattr(torch, name)
    for label, self, other in PAIRS:
        case(f"{name}-{label}", function, self, other, dtypes=dtypes)
    if scalar:
        case(f"{name}-number", function, T((3, 4)), 2, dtypes=dtypes)
        case(f"{name}-strided-number", function, T((3, 4), layout="strided"), 2, dtypes=dtypes)
    if in_place:
        method = getattr(torch.Tensor, f"{name}_")
        for label, self, other in WRITABLE_PAIRS:
            case(f"{name}_-{label}", method, self, other, dtypes=dtypes)
        if scalar:
            case(f"{name}_-number", method, T((3, 4), layout="strided"), 2, dtypes=dtypes)

    def to_out(self: torch.Tensor, other: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return function(self, other, out=out)

    out_dtype = function(torch.ones(1, dtype=dtypes[0]), torch.ones(1, dtype=dtypes[0])).dtype
    out = T((3, 4), layout="strided", dtype=out_dtype)
    case(f"{name}-out", to_out, T((3, 4)), T((4,), 1, 4), out, dtypes=dtypes[:1])


# Pointwise.

for name in ["abs", "neg", "sign"]:
    unary(name, NUMBERS)
for name in ["ceil", "floor", "frac", "round", "trunc"]:
    unary(name)
for name in ["atan", "cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1", "sigmoid", "sin", "sinh", "tan", "tanh"]:
    unary(name)
for name in ["log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sqrt"]:
    unary(name, low=0.5, high=4)
for name in ["acos", "asin"]:
    unary(name, low=-0.9, high=0.9)
unary("bitwise_not", (*SIGNED, torch.bool))
unary("logical_not", (torch.bool, torch.float32, torch.int64))
unary("isneginf", (torch.float32,))
unary("isposinf", (torch.float32,))
unary("signbit", (torch.float32,))
case("isfinite", torch.isfinite, Values([1.0, float("inf"), float("nan")], torch.float32))
case("round-decimals", lambda x: torch.round(x, decimals=1), T())
case("round_-decimals", lambda x: x.round_(decimals=1), T())
case("round_-decimals", lambda x: x.round_(decimals=1), T())

for name in ["add", "sub", "mul"]:
    binary(name)
binary("add", BOOL, scalar=False, in_place=False)
binary("mul", (torch.int16, torch.int8, torch.uint8, torch.bool), scalar=False)
binary("div", FLOATS)
case("div-int", torch.div, T(), T((4,), 1, 4), dtypes=SIGNED)
case("div-int-number", torch.div, T(), 2, dtypes=SIGNED)
binary("atan2", FLOATS, scalar=False)
binary("floor_divide", NUMBERS)
binary("fmod", NUMBERS)
binary("remainder", NUMBERS)
binary("maximum", NUMBERS, scalar=False, in_place=False)
binary("minimum", NUMBERS, scalar=False, in_place=False)
case("pow", torch.pow, T((3, 4), 0.5, 3), T((4,), 1, 3))
case("pow-number", torch.pow, T(), 2, dtypes=NUMBERS)
case("pow-root", torch.pow, T((3, 4), 0.5, 3), 0.5)
case("pow-base", torch.pow, 2.0, T())
case("pow_", torch.Tensor.pow_, T((3, 4), 0.5, 3, "strided"), T((4,), 1, 3))
case("pow_-number", torch.Tensor.pow_, T((3, 4), 0.5, 3, "strided"), 3)
case("remainder-base", torch.remainder, 7.0, T((3, 4), 1, 4))
for name in ["bitwise_and", "bitwise_or", "bitwise_xor"]:
    binary(name, (*SIGNED, torch.bool), scalar=False)
    case(f"{name}-number", getattr(torch, name), T(), 3, dtypes=SIGNED)
    case(f"{name}_-number", getattr(torch.Tensor, f"{name}_"), T(), 3, dtypes=SIGNED)
case("bitwise_left_shift", torch.bitwise_left_shift, T((3, 4), 0, 9), T((3, 4), 0, 3), dtypes=SIGNED)
case("bitwise_right_shift", torch.bitwise_right_shift, T((3, 4), 0, 9), T((3, 4), 0, 3), dtypes=SIGNED)
case("lshift-number", lambda x: x << 2, T((3, 4), 0, 9), dtypes=SIGNED)
case("rshift-number", lambda x: x >> 1, T((3, 4), 0, 9), dtypes=SIGNED)
binary("logical_and", (torch.bool, torch.float32), scalar=False)
binary("logical_or", (torch.bool, torch.float32), scalar=False)
binary("logical_xor", (torch.bool, torch.float32), scalar=False, in_place=False)

for name in ["add", "sub"]:
    function, method = getattr(torch, name), getattr(torch.Tensor, f"{name}_")
    case(f"{name}-alpha", lambda x, y, f=function: f(x, y, alpha=3), T(), T(), dtypes=NUMBERS)
    case(f"{name}_-alpha", lambda x, y, f=method: f(x, y, alpha=3), T(), T((4,)), dtypes=NUMBERS)
    case(f"{name}-mixed", function, T((3, 4), dtype=torch.float16), T((3, 4), dtype=torch.float32))
    case(f"{name}-int-and-float", function, T((3, 4), dtype=torch.int64), T((), dtype=torch.float32))
case("rsub", torch.rsub, T(), T((4,)), dtypes=NUMBERS)
case("rsub-number", lambda x: 3 - x, T(), dtypes=NUMBERS)
case("add-cpu-scalar-first", lambda x: torch.tensor(2.0) + x, T())
for mode in ("trunc", "floor"):
    case(f"div-{mode}", lambda x, y, m=mode: torch.div(x, y, rounding_mode=m), T(), T((4,), 1, 4))
    case(f"div-{mode}-number", lambda x, m=mode: torch.div(x, 2, rounding_mode=m), T())
    case(f"div_-{mode}", lambda x, y, m=mode: x.div_(y, rounding_mode=m), T(), T((4,), 1, 4))
    case(f"div_-{mode}-number", lambda x, m=mode: x.div_(2, rounding_mode=m), T())

for name in ["addcmul", "addcdiv"]:
    function, method = getattr(torch, name), getattr(torch.Tensor, f"{name}_")
    case(name, lambda x, y, z, f=function: f(x, y, z, value=2), T(), T((4,)), T((3, 1), 1, 3))
    case(f"{name}_", lambda x, y, z, f=method: f(x, y, z, value=2), T(layout="strided"), T((4,)), T((3, 1), 1, 3))
case("lerp", torch.lerp, T(), T(), T((3, 4), 0, 1))
case("lerp-number", torch.lerp, T(), T(), 0.25)
case("lerp_", torch.Tensor.lerp_, T(), T(), T((3, 4), 0, 1))
case("lerp_-number", torch.Tensor.lerp_, T(), T(), 0.25)
case("clamp", lambda x: torch.clamp(x, -1, 1), T(), dtypes=NUMBERS)
case("clamp-min-only", lambda x: torch.clamp(x, min=0), T(), dtypes=NUMBERS)
case("clamp-tensors", torch.clamp, T(), T((4,), -2, 0), T((4,), 0, 2))
case("clamp_min", torch.clamp_min, T(), 0.0)
case("clamp_max", torch.clamp_max, T(), 0.0)
case("clamp_min-tensor", torch.clamp_min, T(), T((4,)))
case("clamp_max-tensor", torch.clamp_max, T(), T((4,)))
case("clamp_min_-tensor", torch.Tensor.clamp_min_, T(), T((4,)))
case("clamp_max_-tensor", torch.Tensor.clamp_max_, T(), T((4,)))
case("clamp_max_", torch.Tensor.clamp_max_, T(), 0.0)
HOLES = Values([1.0, float("inf"), float("nan"), float("-inf")], torch.float32)
case("nan_to_num", lambda x: torch.nan_to_num(x, 1, 2, 3), HOLES, dtypes=(torch.float32,))
case("nan_to_num_", lambda x: x.nan_to_num_(1, 2, 3), HOLES, dtypes=(torch.float32,))

# Comparison.

for name in ["eq", "ne", "lt", "le", "gt", "ge"]:
    binary(name, (*NUMBERS, torch.bool))
case("equal", lambda x: torch.equal(x, x.clone()), T())
case("equal-not", torch.equal, T(), T())
case("isclose", torch.isclose, T(), T())
case("isin", torch.isin, index((3, 4), 9), index((5,), 9))
case("isin-many", torch.isin, index((30,), 9), index((50,), 9))
case("isin-number", torch.isin, index((3, 4), 9), 3)
case("isin-number-first", torch.isin, 3, index((3, 4), 9))
case("where", torch.where, mask((3, 4)), T(), T((4,)), dtypes=NUMBERS)
case("where-strided", torch.where, mask((3, 4), "strided"), T(layout="strided"), T(()), dtypes=NUMBERS)

# Copies.

for source in (*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool):
    case(f"cast-from-{source}", lambda x: x.to(torch.float32), T(dtype=source, low=0), dtypes=(torch.float32,))
case("cast", lambda x, y: x.to(y.dtype), T(dtype=torch.float32), T(), dtypes=(*HALVES, *INTS, torch.bool))
case("copy_-strided", torch.Tensor.copy_, T(layout="strided"), T(layout="strided"), dtypes=(*FLOATS, *INTS, torch.bool))
case("copy_-broadcast", torch.Tensor.copy_, T(layout="strided"), T((4,)), dtypes=NUMBERS)
case("copy_-cast", torch.Tensor.copy_, T(dtype=torch.float16), T(dtype=torch.float32))
case("contiguous", lambda x: x.t().contiguous(), T(), dtypes=(*NUMBERS, torch.bool))
case("slice-assign", lambda x, y: x[1:, ::2].copy_(y), T((3, 4)), T((2, 2)), dtypes=NUMBERS)
case("cat", lambda x, y: torch.cat([x, y], 1), T((3, 4)), T((3, 2), layout="strided"), dtypes=(*NUMBERS, torch.bool))
case("cat-first-dim", lambda x, y: torch.cat([x, y], -2), T((3, 4)), T((1, 4)), dtypes=NUMBERS)
case("cat-promotes", lambda x, y: torch.cat([x, y]), T((3, 4), dtype=torch.float16), T((3, 4), dtype=torch.float32))
case("stack", lambda x, y: torch.stack([x, y], 1), T(), T(layout="strided"), dtypes=NUMBERS)
case("repeat", lambda x: x.repeat(2, 1, 3), T(layout="strided"), dtypes=NUMBERS)
case("repeat_interleave", lambda x: x.repeat_interleave(2), T(), dtypes=NUMBERS)
case("repeat_interleave-dim", lambda x: x.repeat_interleave(2, 1), T(), dtypes=NUMBERS)
REPEATS = Values([1, 0, 2])
case("repeat_interleave-tensor", lambda x, n: x.repeat_interleave(n), T((3,)), REPEATS)
case("repeat_interleave-tensor-dim", lambda x, n: x.repeat_interleave(n, 0), T(), REPEATS)
case("repeat_interleave-counts", torch.repeat_interleave, REPEATS)
case("flip", lambda x: torch.flip(x, [0, -1]), T(layout="strided"), dtypes=NUMBERS)
case("roll", lambda x: torch.roll(x, [1, -1], [0, 1]), T(), dtypes=NUMBERS)
case("pad", lambda x: F.pad(x, (1, 2, 0, 1), value=7), T(), dtypes=NUMBERS)
for name in ["tril", "triu"]:
    case(name, lambda x, n=name: getattr(torch, n)(x, 1), T((2, 3, 4)), dtypes=(*NUMBERS, torch.bool))
    case(f"{name}_", lambda x, n=name: getattr(x, f"{n}_")(-1), T((3, 4)), dtypes=FLOATS)

# Creation: the first argument carries type and device.

CREATED = T(())
case("zeros", lambda x: torch.zeros(3, 4, dtype=x.dtype, device=x.device), CREATED, dtypes=(*NUMBERS, torch.bool))
case("ones", lambda x: torch.ones(3, 4, dtype=x.dtype, device=x.device), CREATED, dtypes=(*NUMBERS, torch.bool))
case("full", lambda x: torch.full((3, 4), 2, dtype=x.dtype, device=x.device), CREATED, dtypes=NUMBERS)
case("zero_", torch.Tensor.zero_, T(layout="strided"), dtypes=(*NUMBERS, torch.bool))
case("fill_", lambda x: x.fill_(2), T(layout="strided"), dtypes=(*NUMBERS, torch.bool))
case("fill_-tensor", torch.Tensor.fill_, T(layout="strided"), T(()), dtypes=NUMBERS)
case("fill_diagonal_", lambda x: x.fill_diagonal_(5), T((4, 4)))
case("arange", lambda x: torch.arange(1, 9, 2, dtype=x.dtype, device=x.device), CREATED, dtypes=NUMBERS)
case("arange-empty", lambda x: torch.arange(0, dtype=x.dtype, device=x.device), CREATED, dtypes=NUMBERS)
case("range", lambda x: torch.range(1, 7, 2, dtype=x.dtype, device=x.device), CREATED, dtypes=(torch.float32,))
case("linspace", lambda x: torch.linspace(0, 1, 5, dtype=x.dtype, device=x.device), CREATED, dtypes=(torch.float32,))
case("eye", lambda x: torch.eye(3, 4, dtype=x.dtype, device=x.device), CREATED, dtypes=NUMBERS)
case("one_hot", lambda x: F.one_hot(x, 5), index((3,), 5))

# Indexing.

case("embedding", F.embedding, index((2, 3), 5), T((5, 4)))
case("embedding-int32", F.embedding, T((2, 3), 0, 5, dtype=torch.int32), T((5, 4), layout="strided"))
case(
    "embedding_dense_backward",
    lambda grad, i: torch.ops.aten.embedding_dense_backward(grad, i, 5, -1, False),
    T((2, 3, 4), dtype=torch.float32),
    index((2, 3), 5),
)
case("index", lambda x, i: x[i], T((5, 4)), index((3,), 5), dtypes=(*NUMBERS, torch.bool))
case("index-two", lambda x, i, j: x[i, j], T((5, 4)), index((3,), 5), index((3,), 4), dtypes=NUMBERS)
case("index-second", lambda x, i: x[:, i], T((5, 4)), index((3,), 4), dtypes=NUMBERS)
case("index-outer", lambda x, i: x[i, :, i], T((5, 4, 5)), index((3,), 5), dtypes=NUMBERS)
case("index-mask", lambda x, m: x[m], T(), mask((3, 4)), dtypes=NUMBERS)
case("index_put_", lambda x, i, y: x.index_put_((i,), y), T((5, 4)), Values([0, 3]), T((2, 4)), dtypes=NUMBERS)
case("index_put_-add", lambda x, i, y: x.index_put_((i,), y, True), T((5, 4)), Values([3, 3]), T((2, 4)))
case("index_put_-second", lambda x, i, y: x.__setitem__((slice(None), i), y), T((5, 4)), Values([0, 3]), T((5, 2)))
case("index_put_-mask", lambda x, m: x.__setitem__(m, 0), T(), mask((3, 4)), dtypes=NUMBERS)
case("index_select", torch.index_select, T((5, 4)), 1, index((3,), 4), dtypes=NUMBERS)
case("index_copy", torch.index_copy, T((5, 4)), 0, Values([3, 1]), T((2, 4)), dtypes=NUMBERS)
case("index_copy_", torch.Tensor.index_copy_, T((5, 4), layout="strided"), 1, Values([3, 1]), T((5, 2)), dtypes=NUMBERS)
case("index_add", torch.index_add, T((5, 4)), 0, Values([3, 3]), T((2, 4)))
case("index_add_", lambda x, i, y: x.index_add_(0, i, y, alpha=2), T((5, 4)), Values([3, 1]), T((2, 4)))
case("index_fill", torch.index_fill, T((5, 4)), 0, Values([3, 1]), 7)
case("index_fill_", torch.Tensor.index_fill_, T((5, 4)), 0, Values([3, 1]), 7)
case("gather", torch.gather, T((3, 4)), 1, index((3, 2), 4), dtypes=NUMBERS)
case("take", torch.take, T((3, 4)), index((5,), 12))
PLACES = Values([[3, 1], [0, 2], [1, 0]])
case("scatter", torch.scatter, T(), 1, PLACES, T((3, 2)), dtypes=NUMBERS)
case("scatter-number", torch.scatter, T(), 1, PLACES, 7, dtypes=NUMBERS)
case("scatter_", torch.Tensor.scatter_, T(layout="strided"), 1, PLACES, T((3, 2)), dtypes=NUMBERS)
case("scatter_-number", torch.Tensor.scatter_, T(layout="strided"), 1, PLACES, 7, dtypes=NUMBERS)
case("scatter-add", lambda x, i, y: torch.scatter(x, 1, i, y, reduce="add"), T(), PLACES, T((3, 2)))
case("scatter-multiply", lambda x, i, y: torch.scatter(x, 1, i, y, reduce="multiply"), T(), PLACES, T((3, 2)))
case("scatter_add", torch.scatter_add, T(), 1, PLACES, T((3, 2)))
case("scatter_add_", torch.Tensor.scatter_add_, T(), 1, PLACES, T((3, 2)))
for how in ("sum", "amax", "amin", "mean", "prod"):
    case(f"scatter_reduce-{how}", lambda x, i, y, h=how: torch.scatter_reduce(x, 1, i, y, h), T(), PLACES, T((3, 2)))
case("scatter_reduce_", lambda x, i, y: x.scatter_reduce_(1, i, y, "sum"), T(), PLACES, T((3, 2)))
case("masked_fill", torch.masked_fill, T(), mask((4,)), 7, dtypes=NUMBERS)
case("masked_fill_", torch.Tensor.masked_fill_, T(layout="strided"), mask((3, 4)), 7, dtypes=NUMBERS)
case("masked_fill_-infinity", torch.Tensor.masked_fill_, T(), mask((3, 4)), float("-inf"))
case("masked_fill_-tensor", torch.Tensor.masked_fill_, T(), mask((3, 4)), T(()), dtypes=NUMBERS)
case("masked_scatter_", torch.Tensor.masked_scatter_, T(), mask((3, 4)), T((12,)), dtypes=NUMBERS)
case("masked_select", torch.masked_select, T(layout="strided"), mask((3, 4)), dtypes=NUMBERS)
case("masked_select-broadcast", torch.masked_select, T((3, 4)), mask((4,)), dtypes=NUMBERS)
case("nonzero", torch.nonzero, T((3, 4), -1, 1), dtypes=(*SIGNED, torch.bool, torch.float32))
case("nonzero-none", torch.nonzero, Values([0, 0]))
case("nonzero-tuple", lambda x: torch.nonzero(x, as_tuple=True), mask((3, 4)))
case("item", lambda x: x[1, 2].item(), T(), dtypes=(*NUMBERS, torch.bool))

# Products.

case("mm", torch.mm, T((3, 4)), T((4, 5)))
case("mm-transposed", lambda x, y: torch.mm(x, y.t()), T((3, 4)), T((5, 4)))
case("mm-strided", torch.mm, T((3, 4), layout="strided"), T((4, 5), layout="strided"))
case("bmm", torch.bmm, T((2, 3, 4)), T((2, 4, 5)))
case("bmm-transposed", lambda x, y: torch.bmm(x, y.transpose(1, 2)), T((2, 3, 4)), T((2, 5, 4)))
case("matmul-4d", torch.matmul, T((2, 2, 3, 4)), T((2, 2, 4, 5)))
case("matmul-broadcast", torch.matmul, T((2, 3, 4)), T((4, 5)))
case("matmul-vector", torch.matmul, T((3, 4)), T((4,)))
case("matmul-out", lambda x, y, out: torch.matmul(x, y, out=out), T((3, 4)), T((4, 5)), T((3, 5)))
case("mv", torch.mv, T((3, 4)), T((4,)))
case("dot", torch.dot, T((4,)), T((4,)))
case("addmm", lambda x, y, z: torch.addmm(x, y, z, beta=2, alpha=3), T((5,)), T((3, 4)), T((4, 5)))
case("addmm_", lambda x, y, z: x.addmm_(y, z, beta=2, alpha=3), T((3, 5)), T((3, 4)), T((4, 5)))
case("addbmm", lambda x, y, z: torch.addbmm(x, y, z, beta=2, alpha=3), T((3, 5)), T((2, 3, 4)), T((2, 4, 5)))
case("baddbmm", lambda x, y, z: torch.baddbmm(x, y, z, beta=2, alpha=3), T((2, 3, 5)), T((2, 3, 4)), T((2, 4, 5)))
case("addmv", lambda x, y, z: torch.addmv(x, y, z, beta=2, alpha=3), T((3,)), T((3, 4)), T((4,)))
case("addr", lambda x, y, z: torch.addr(x, y, z, beta=2, alpha=3), T((3, 4)), T((3,)), T((4,)))
case("addr_", lambda x, y, z: x.addr_(y, z, beta=2, alpha=3), T((3, 4)), T((3,)), T((4,)))
case("linear", F.linear, T((2, 3, 4)), T((5, 4)), T((5,)))
case("linear-no-bias", F.linear, T((2, 3, 4)), T((5, 4)))

# Reductions.

for name in ["sum", "mean", "amax", "amin"]:
    function = getattr(torch, name)
    types = FLOATS if name == "mean" else (torch.float32, *SIGNED) if name == "sum" else NUMBERS
    case(f"{name}-last", lambda x, f=function: f(x, -1), T((2, 3, 4)), dtypes=types)
    case(f"{name}-two", lambda x, f=function: f(x, (0, 2), keepdim=True), T((2, 3, 4)), dtypes=types)
    case(f"{name}-strided", lambda x, f=function: f(x, 0), T(layout="strided"), dtypes=types)
case("sum-all", torch.sum, T(), dtypes=(torch.float32, *SIGNED, torch.bool))
case("sum-scalar", torch.sum, T(()))
case("sum-empty", torch.sum, T((0, 4)), dtypes=(torch.float32, torch.int64))
case("sum-dtype", lambda x: torch.sum(x, 1, dtype=torch.float32), T(), dtypes=HALVES)
case("mean-all", torch.mean, T())
case("mean-dtype", lambda x: torch.mean(x, 1, dtype=torch.float32), T(), dtypes=HALVES)
case("nansum", torch.nansum, Values([1.0, float("nan"), 2.0], torch.float32), dtypes=(torch.float32,))
case("prod-all", torch.prod, T(), dtypes=(torch.float32, torch.int64))
case("prod", lambda x: torch.prod(x, 1, keepdim=True), T(), dtypes=(torch.float32, torch.int64))
case("aminmax", lambda x: tuple(torch.aminmax(x, dim=1)), T())
for name in ["max", "min"]:
    function = getattr(torch, name)
    case(f"{name}-all", function, T(), dtypes=NUMBERS)
    case(f"{name}-dim", lambda x, f=function: tuple(f(x, 1)), Values([[3, 1, 2], [4, 6, 5]]), dtypes=(torch.int64,))
    case(f"{name}-keepdim", lambda x, f=function: tuple(f(x, -1, keepdim=True)), T(dtype=torch.float32))
for name in ["argmax", "argmin"]:
    function = getattr(torch, name)
    case(f"{name}-all", function, T(dtype=torch.float32))
    case(f"{name}-dim", lambda x, f=function: f(x, 1), T(layout="strided", dtype=torch.float32))
    case(f"{name}-keepdim", lambda x, f=function: f(x, -1, keepdim=True), T(dtype=torch.float32))
for name in ["all", "any"]:
    function = getattr(torch, name)
    case(f"{name}-whole", function, mask((3, 4)))
    case(f"{name}-dim", lambda x, f=function: f(x, 1), mask((3, 4)))
    case(f"{name}-keepdim", lambda x, f=function: f(x, -1, keepdim=True), T((3, 4), -1, 1), dtypes=NUMBERS)
    case(f"{name}-empty", function, mask((0, 4)))
case("var", lambda x: torch.var(x, 1), T(dtype=torch.float32))
case("var-all-biased", lambda x: torch.var(x, correction=0), T(dtype=torch.float32))
case("var_mean", lambda x: torch.var_mean(x, 1, keepdim=True), T(dtype=torch.float32))
case("std", lambda x: torch.std(x, (0, 1)), T(dtype=torch.float32))
case("norm-p", lambda x: torch.ops.aten.norm(x, 3, [1], True), T(dtype=torch.float32))
case("norm", torch.norm, T(dtype=torch.float32))
case("norm-dim", lambda x: torch.norm(x, 1, 1), T(dtype=torch.float32))
case("vector_norm", lambda x: torch.linalg.vector_norm(x, dim=1), T(dtype=torch.float32))
case("logsumexp", lambda x: torch.logsumexp(x, 1), T(dtype=torch.float32))
case("cumsum", lambda x: torch.cumsum(x, 1), T(), dtypes=(torch.float32, torch.int64, torch.int32))
case("cumsum-bool", lambda x: torch.cumsum(x, 0), mask((3, 4)))
case("cumsum-dtype", lambda x: torch.cumsum(x, 0, dtype=torch.float32), T(), dtypes=HALVES)
case("cumprod", lambda x: torch.cumprod(x, 1), T(dtype=torch.float32))
case("bincount", torch.bincount, index((9,), 5))
case("bincount-weights", lambda x, w: torch.bincount(x, w, 7), index((9,), 5), T((9,), dtype=torch.float32))

# Sorting.

DISTINCT = Values([[3.0, 1.0, 2.0, 5.0], [4.0, 6.0, 5.0, 0.0]], torch.float32)
case("sort", lambda x: tuple(torch.sort(x)), DISTINCT)
case("sort-descending", lambda x: tuple(torch.sort(x, 0, descending=True)), DISTINCT)
case("sort-stable", lambda x: tuple(torch.sort(x, stable=True)), index((3, 9), 3))
case("argsort", torch.argsort, DISTINCT)
case("topk", lambda x: tuple(torch.topk(x, 2)), DISTINCT)
case("topk-smallest", lambda x: tuple(torch.topk(x, 2, largest=False)), DISTINCT)
case("kthvalue", lambda x: tuple(torch.kthvalue(x, 2)), DISTINCT)
case("unique", torch.unique, index((9,), 4))
case("unique-all", lambda x: torch.unique(x, return_inverse=True, return_counts=True), index((3, 4), 4))
case("_unique", lambda x: torch.ops.aten._unique(x, True, True), index((9,), 4))
case("searchsorted", torch.searchsorted, Values([1.0, 3.0, 5.0], torch.float32), T((3, 4), 0, 6, dtype=torch.float32))
case("searchsorted-number", torch.searchsorted, Values([1.0, 3.0, 5.0], torch.float32), 4.0)
case("bucketize", torch.bucketize, T((3, 4), 0, 6, dtype=torch.float32), Values([1.0, 3.0, 5.0], torch.float32))

# Networks.

for name in ["relu", "silu", "mish", "hardswish", "hardsigmoid"]:
    function = getattr(F, name)
    case(name, function, T(layout="strided"))
    case(f"{name}-empty", function, T((0, 4)))
    case(f"{name}-in-place", lambda x, f=function: f(x, inplace=True), T(layout="strided"))
case("gelu-tanh", lambda x: F.gelu(x, approximate="tanh"), T())
case("leaky_relu", lambda x: F.leaky_relu(x, 0.1), T())
case("leaky_relu_", lambda x: F.leaky_relu_(x, 0.1), T())
case("elu", lambda x: F.elu(x, 0.5), T())
case("elu_", lambda x: F.elu_(x, 0.5), T())
case("softplus", lambda x: F.softplus(x, 2, 5), T())
case("hardtanh", lambda x: F.hardtanh(x, -1, 2), T())
case("hardtanh_", lambda x: F.hardtanh_(x, -1, 2), T())
case("threshold", lambda x: F.threshold(x, 0.1, 7), T())
case("glu", lambda x: F.glu(x, 1), T())
case("softmax", lambda x: F.softmax(x, -1), T(layout="strided"))
case("softmax-first-dim", lambda x: F.softmax(x, 0), T((2, 3, 4)))
case("softmax-float", lambda x: F.softmax(x, -1, dtype=torch.float32), T(), dtypes=HALVES)
case("log_softmax", lambda x: F.log_softmax(x, -1), T(layout="strided"))
for name in ["_softmax_backward_data", "_log_softmax_backward_data"]:
    function = getattr(torch.ops.aten, name)
    case(name, lambda g, y, f=function: f(g, y, -1, y.dtype), T(), T((3, 4), 0.1, 1))
for name in ["sigmoid_backward", "silu_backward", "tanh_backward"]:
    case(name, getattr(torch.ops.aten, name), T(layout="strided"), T((3, 4), 0.1, 1))
case("gelu_backward", lambda g, x: torch.ops.aten.gelu_backward(g, x, approximate="tanh"), T(), T())
case("threshold_backward", lambda g, x: torch.ops.aten.threshold_backward(g, x, 0), T(), T())
case("layer_norm", lambda x, w, b: F.layer_norm(x, (4,), w, b), T((2, 3, 4)), T((4,)), T((4,)), dtypes=(torch.float32,))
case("layer_norm-plain", lambda x: F.layer_norm(x, (3, 4)), T((2, 3, 4)), dtypes=(torch.float32,))
case("layer_norm-halves", lambda x, w, b: F.layer_norm(x, (4,), w, b), T((2, 4)), T((4,)), T((4,)), dtypes=HALVES)
case("rms_norm", lambda x, w: F.rms_norm(x, (4,), w, 1e-6), T((2, 3, 4)), T((4,)), dtypes=(torch.float32,))
case("nll_loss", F.nll_loss, T((3, 4), dtype=torch.float32), index((3,), 4))
case("nll_loss-sum", lambda x, t: F.nll_loss(x, t, reduction="sum"), T((3, 4), dtype=torch.float32), index((3,), 4))
case("mse_loss", F.mse_loss, T(), T())
case("mse_loss-sum", lambda x, y: F.mse_loss(x, y, reduction="sum"), T(dtype=torch.float32), T(dtype=torch.float32))
case("cross_entropy", F.cross_entropy, T((3, 4), dtype=torch.float32), index((3,), 4))


def gradients(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """What autograd gives for the sum of squares of a function's result, for each floating-point argument."""

    def call(*arguments: torch.Tensor) -> Any:
        leaves = [x.detach().requires_grad_(x.dtype.is_floating_point) for x in arguments]
        function(*leaves).square().sum().backward()
        return [leaf.grad for leaf in leaves if leaf.requires_grad]

    return call


WIDE = T((2, 3, 4), dtype=torch.float32)
ROW = T((4,), dtype=torch.float32)
case("layer_norm-gradients", gradients(lambda x, w, b: F.layer_norm(x, (4,), w, b)), WIDE, ROW, ROW)
case("layer_norm-gradient", gradients(lambda x: F.layer_norm(x, (4,))), WIDE)
case("linear-gradients", gradients(F.linear), WIDE, T((5, 4), dtype=torch.float32), T((5,), dtype=torch.float32))
case("cross_entropy-gradient", gradients(F.cross_entropy), T((3, 4), dtype=torch.float32), index((3,), 4))
case("mse_loss-gradient", gradients(F.mse_loss), WIDE, T((2, 3, 4), 5, 6, dtype=torch.float32))
case("softmax-gradient", gradients(lambda x: F.softmax(x, -1)), WIDE)

# Attention through torch. Head size 8 takes the fused operator, 6 the step-by-step one.

QUERY = T((2, 4, 5, 8), dtype=torch.float32)
KEY = T((2, 4, 7, 8), dtype=torch.float32)
sdpa = F.scaled_dot_product_attention
case("sdpa", sdpa, QUERY, KEY, KEY)
case("sdpa-causal", lambda q, k, v: sdpa(q, k, v, is_causal=True), QUERY, QUERY, QUERY)
case("sdpa-masked", sdpa, QUERY, KEY, KEY, T((2, 1, 5, 7), -1, 0.1, dtype=torch.bool))
case("sdpa-float-mask", sdpa, QUERY, KEY, KEY, T((5, 7), dtype=torch.float32))
case("sdpa-scale", lambda q, k, v: sdpa(q, k, v, scale=0.1), QUERY, KEY, KEY)
case("sdpa-small-heads", sdpa, *[T((2, 4, 5, 6), dtype=torch.float32)] * 3)
case("sdpa-transposed", lambda x: sdpa(*[x.transpose(1, 2)] * 3), T((2, 5, 4, 8), dtype=torch.float32))
case("sdpa-half", sdpa, *[T((2, 4, 5, 8))] * 3, dtypes=HALVES)
GROUPED = T((2, 2, 7, 8), dtype=torch.float32)
case("sdpa-grouped", lambda q, k, v: sdpa(q, k, v, enable_gqa=True), QUERY, GROUPED, GROUPED)

# Lists of tensors.

LIST = [T((3, 4)), T((2,))]
SECOND = [T((3, 4), 1, 4), T((2,), 1, 4)]
for name in ["add", "sub", "mul", "div"]:
    for form in (name, f"{name}_"):
        function = getattr(torch, f"_foreach_{form}")
        case(f"_foreach_{form}", function, LIST, SECOND, dtypes=FLOATS)
        case(f"_foreach_{form}-number", function, LIST, 2.0, dtypes=FLOATS)
        case(f"_foreach_{form}-numbers", function, LIST, [2.0, 3.0], dtypes=(torch.float32,))
case("_foreach_copy_", torch._foreach_copy_, LIST, SECOND, dtypes=FLOATS)
case("_foreach_zero_", torch._foreach_zero_, LIST, dtypes=FLOATS)
