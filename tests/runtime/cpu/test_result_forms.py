"""Forms of results that are worked out without fake tensors are those of eager, however the arguments lie in memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from process import run_command, start_command
from torch import Tensor

import airgraph
from airgraph.errors import CaptureError
from airgraph.runtime.cpu import form_rules
from airgraph.runtime.cpu import result_forms as module
from airgraph.runtime.cpu.result_forms import result_forms
from airgraph.runtime.engine.loading import engine

_aten = torch.ops.aten
_DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool)


def _layouts(*shape: int, dtype: torch.dtype = torch.float32) -> Iterator[Tensor]:
    """One shape in memory as it comes, permuted, with gaps, expanded."""
    yield torch.ones(shape, dtype=dtype)
    if len(shape) > 1:
        yield torch.ones(shape[::-1], dtype=dtype).permute(*range(len(shape) - 1, -1, -1))
        yield torch.ones((*shape[:-1], shape[-1] * 2), dtype=dtype)[..., ::2]
        yield torch.ones((1, *shape[1:]), dtype=dtype).expand(shape)
    if len(shape) == 4:
        yield torch.ones(shape, dtype=dtype).contiguous(memory_format=torch.channels_last)


def _operands() -> Iterator[tuple[Tensor, Tensor]]:
    shapes = [((2, 3), (2, 3)), ((2, 1, 3), (4, 1)), ((1, 3), (1, 1)), ((3,), ()), ((), ()), ((2, 3, 4, 5), (3, 1, 1))]
    for a, b in [*shapes, ((0, 3), (1, 3)), ((2, 3, 4, 5), (2, 3, 4, 5))]:
        yield from itertools.product(_layouts(*a), _layouts(*b))


def _form(value: Any) -> Any:
    if isinstance(value, Tensor):
        # Where there is no element, or one, strides say nothing.
        return tuple(value.shape), value.stride() if value.numel() > 1 else None, value.dtype
    return [_form(each) for each in value] if isinstance(value, (list, tuple)) else value


def _check(op: Any, *args: Any, **kwargs: Any) -> bool:
    """Whether the forms were known; then they are eager's."""
    given = result_forms(op, args, kwargs)
    try:
        expected = op(*args, **kwargs)
    except (RuntimeError, IndexError):
        # A kernel for meta may not look at all that one for CPU does; fake tensors take it too.
        assert given is None or module._rule(op) is module._by_kernel, f"{op} raises for {_form(args)}"
        return False
    if given is not None:
        assert _form(given) == _form(expected), f"{op} of {_form(args)} {kwargs}"
    return given is not None


def _pointwise(in_place: bool) -> list[torch._ops.OpOverload]:
    rules = (form_rules.in_place,) if in_place else (form_rules.of_operands, form_rules.of_one)
    return [op for op, rule in module._RULES.items() if rule in rules]


def _arguments(op: torch._ops.OpOverload, a: Tensor, b: Tensor) -> list[Any]:
    """Those without a default: tensors in turn, and a number."""
    tensors, made = itertools.cycle((a, b)), []
    for argument in op._schema.arguments:
        if argument.has_default_value():
            break
        made.append(next(tensors) if str(argument.type) == "Tensor" else 2)
    if op.name() == "aten::where.self":
        made[0] = made[0] > 0
    return [*made, 1] if "clamp" in op.name() and len(made) == 1 else made


@pytest.mark.skipif(not engine().MOVES_MEMORY, reason="only the native engine knows how operands broadcast")
@torch.no_grad()
@pytest.mark.parametrize("op", _pointwise(in_place=False), ids=str)
def test_pointwise_operators(op: torch._ops.OpOverload) -> None:
    found = sum(_check(op, *_arguments(op, a, b)) for a, b in _operands())
    for one, other in itertools.product(_DTYPES, _DTYPES):
        for shape in ((2,), ()):
            found += _check(op, *_arguments(op, torch.ones(shape, dtype=one), torch.ones(2, dtype=other)))
    assert found


@pytest.mark.skipif(not engine().MOVES_MEMORY, reason="only the native engine knows how operands broadcast")
@torch.no_grad()
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_numbers_among_the_operands(name: str) -> None:
    op = getattr(_aten, name).Tensor
    for number, dtype in itertools.product((2, 2.5, True, 1j), _DTYPES):
        for x in (*_layouts(2, 3, dtype=dtype), torch.ones((), dtype=dtype), torch.ones(1, 3, dtype=dtype)):
            _check(op, x, number)


@torch.no_grad()
@pytest.mark.parametrize("op", [*_pointwise(in_place=True), _aten.copy_.default, _aten.fill_.Scalar], ids=str)
def test_what_is_written_keeps_its_form_or_fails(op: torch._ops.OpOverload) -> None:
    found = 0
    for a, b in _operands():
        if all(stride or size == 1 for stride, size in zip(a.stride(), a.shape, strict=True)):
            found += _check(op, *_arguments(op, a, b))
    for one, other in itertools.product(_DTYPES, _DTYPES):
        found += _check(op, *_arguments(op, torch.ones(2, dtype=one), torch.ones(2, dtype=other)))
    assert found


def _cases() -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    matrices = list(_layouts(3, 4))
    for a, b in itertools.product(matrices, _layouts(4, 5)):
        yield _aten.mm.default, (a, b), {}
        for bias in (torch.ones(5), torch.ones(3, 5), torch.ones(1), torch.ones(5, 3).t(), torch.ones(7)):
            yield _aten.addmm.default, (bias, a, b), {}
    for a, b in itertools.product(_layouts(2, 3, 4), _layouts(2, 4, 5)):
        yield _aten.bmm.default, (a, b), {}
        yield _aten.baddbmm.default, (torch.ones(2, 3, 5), a, b), {}
    for x in (*_layouts(2, 3, 4, 5), *_layouts(3, 4), torch.ones(3), torch.ones(())):
        for dim in (0, -1, 1, 7):
            yield _aten._softmax.default, (x, dim, False), {}
            yield _aten._log_softmax.default, (x, dim, False), {}
            yield _aten.cumsum.default, (x, dim), {}
            yield _aten.cat.default, ([x, x], dim), {}
            if x.dim():
                yield _aten.cat.default, ([x, x[:1], x], dim), {}
            for op in (_aten.any.dim, _aten.all.dim):
                yield op, (x, dim), {}
            for op in (_aten.argmax.default, _aten.argmin.default):
                yield op, (x, dim), {}
                yield op, (x, dim, True), {}
                yield op, (x, None, True), {}
                yield op, (x,), {}
            yield _aten.sort.default, (x, dim), {}
            yield _aten.topk.default, (x, 2, dim), {}
            yield _aten.index_select.default, (x, dim, torch.tensor([0, 1])), {}
            for op in (_aten.sum.dim_IntList, _aten.mean.dim, _aten.amax.default, _aten.amin.default):
                for keepdim in (False, True):
                    yield op, (x, [dim], keepdim), {}
                    yield op, (x, [0, 1], keepdim), {}
                    yield op, (x, [dim, dim]), {}
                    yield op, (x, []), {}
        for each in ("sum", "mean", "any", "all", "max", "min", "clone", "zeros_like", "ones_like", "empty_like"):
            yield getattr(_aten, each).default, (x,), {}
        for made in (_aten.full_like.default, _aten.new_full.default):
            yield made, ((x, 3) if made is _aten.full_like.default else (x, [2, 3], 3)), {"dtype": torch.int32}
        yield _aten.new_zeros.default, (x, [2, 3]), {"device": torch.device("cpu"), "pin_memory": False}
        yield _aten._to_copy.default, (x,), {"dtype": torch.float64}
        yield _aten._to_copy.default, (x,), {"device": torch.device("cpu")}
        yield _aten._to_copy.default, (x,), {"memory_format": torch.contiguous_format}
        yield _aten.clone.default, (x,), {"memory_format": torch.contiguous_format}
        yield _aten.constant_pad_nd.default, (x, [1, 2]), {}
        yield _aten.repeat.default, (x, [2] * max(x.dim(), 1)), {}
        yield _aten.copy.default, (x, torch.ones(())), {}
    for dtype in _DTYPES:
        x = torch.ones(2, 3, dtype=dtype)
        for op in (_aten.sum.default, _aten.mean.default, _aten.any.default, _aten.max.default):
            yield op, (x,), {}
        for op in (_aten.sum.dim_IntList, _aten.mean.dim, _aten.amax.default):
            yield op, (x, [1]), {}
            if op is not _aten.amax.default:
                yield op, (x, [1]), {"dtype": torch.float64}
        yield _aten.cumsum.default, (x, 1), {}
        yield _aten._softmax.default, (x, 1, False), {}
        yield _aten._log_softmax.default, (x, 1, False), {}
        yield _aten.any.dim, (x, 1), {}
        yield _aten.addmm.default, (torch.ones(2), x, torch.ones(3, 2, dtype=dtype)), {}
    for x in _layouts(2, 3, 4):
        for sizes in ([4], [3, 4], [5]):
            given = torch.ones(sizes)
            for weights in ((None, None), (given, given), (given, None), (given.double(), None)):
                yield _aten.native_layer_norm.default, (x, sizes, *weights, 1e-5), {}
    yield _aten.native_layer_norm.default, (torch.ones(2, 4).bfloat16(), [4], torch.ones(4), None, 1e-5), {}
    table, rows = torch.ones(10, 4), torch.zeros(2, 3, dtype=torch.int64)
    yield _aten.embedding.default, (table, rows), {}
    yield _aten.embedding.default, (table, rows.t()), {}
    yield _aten.gather.default, (table, 1, rows), {}
    yield _aten.masked_fill.Scalar, (table.t(), table.t() > 0, 2.0), {}
    yield _aten.masked_fill.Scalar, (table, table[:1] > 0, 2), {}
    yield _aten.masked_fill.Tensor, (table[:, :1], table > 0, torch.tensor(2.0)), {}
    yield _aten.scatter.src, (table, 1, rows, torch.ones(2, 3)), {}
    yield _aten.index_copy.default, (table, 0, rows[0, :1], torch.ones(1, 4)), {}
    for source in (torch.ones(1, 4), torch.ones(1, 5), torch.ones(2, 4), torch.ones(1, 4).double(), torch.ones(4)):
        yield _aten.index_copy_.default, (table.clone(), 0, rows[0, :1], source), {}
    yield _aten.index_copy_.default, (table.clone().t(), -1, rows[0, :2], torch.ones(4, 2)), {}
    yield _aten.index_copy_.default, (table.clone(), 2, rows[0, :1], torch.ones(1, 4)), {}
    for mask in (table > 0, table[:1] > 0, table[None] > 0, table[:3] > 0):
        yield _aten.masked_fill_.Scalar, (table.clone(), mask, 2.0), {}
        yield _aten.masked_fill_.Tensor, (table.clone(), mask, torch.tensor(2.0)), {}
    for a, b in (((2, 3), (4, 3)), ((2, 3), (3,)), ((1, 2, 3), (1, 3, 2)), ((2, 2, 3), (1, 3, 2))):
        yield _aten.mm.default, (torch.ones(a), torch.ones(b)), {}
        yield _aten.bmm.default, (torch.ones(a), torch.ones(b)), {}
    yield _aten.mm.default, (torch.ones(2, 3), torch.ones(3, 2).double()), {}
    yield _aten.slice_scatter.default, (table, torch.ones(2, 4), 0, 0, 2), {}
    yield _aten.select_scatter.default, (table, torch.ones(4), 0, 0), {}
    yield _aten.index_put.default, (table, [rows], torch.ones(2, 3, 4)), {}
    yield _aten.index_put.default, (table, [table > 0], torch.tensor(1.0)), {}
    yield _aten.index_put.default, (table.t(), [None, rows[0]], torch.ones(4, 3)), {}
    for q in (torch.ones(1, 2, 5, 8), torch.ones(1, 5, 2, 8).transpose(1, 2)):
        yield _aten._scaled_dot_product_flash_attention_for_cpu.default, (q, q, q, 0.0, True), {}
    for op, args in (
        (_aten.arange.default, (5,)), (_aten.arange.start_step, (0, 5, 2)), (_aten.full.default, ([2, 3], 1.5)),
        (_aten.zeros.default, ([2],)), (_aten.ones.default, ([2],)), (_aten.scalar_tensor.default, (3,)),
        (_aten.full.default, ([2], True)), (_aten.empty.memory_format, ([2, 3, 4, 5],)), (_aten.rand.default, ([3],)),
    ):  # fmt: skip
        for device in (None, torch.device("cpu")):
            yield op, args, {"device": device, "pin_memory": False}
        yield op, args, {"dtype": torch.float64}


@torch.no_grad()
def test_results_that_have_their_place() -> None:
    a, b = torch.ones(2, 3), torch.ones(3, 4)
    for out in (torch.empty(2, 4), torch.empty(4, 2).t()):
        assert _check(_aten.mm.out, a, b, out=out)
    assert _check(_aten.cat.out, [a, a], 1, out=torch.empty(2, 6))
    assert _check(_aten.add.out, a, 1, out=torch.empty(2, 3))
    # It grows, or is of another type.
    for out in (torch.empty(0), torch.empty(2, 3, dtype=torch.float64)):
        assert result_forms(_aten.add.out, (a, 1), {"out": out}) is None


@torch.no_grad()
def test_other_operators() -> None:
    known = {op: 0 for op, _, _ in _cases()}
    for op, args, kwargs in _cases():
        known[op] += _check(op, *args, **kwargs)
    assert not [op for op, times in known.items() if not times]


def test_what_is_not_known_is_left_to_fake_tensors() -> None:
    x = torch.ones(2, 3)
    assert result_forms(_aten.nonzero.default, (x,), {}) is None
    assert result_forms(_aten.mul.Tensor, (torch.ones(2, dtype=torch.complex64).conj(), 2), {}) is None
    assert result_forms(_aten.zeros.default, ([2],), {"device": torch.device("meta")}) is None
    assert result_forms(_aten.mm.default, (x, x), {}) is None


_SECOND_START = """
import sys
import torch, airgraph


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)

    def forward(self, x, cache, rows):
        y = torch.nn.functional.gelu(self.linear(self.norm(x)))
        cache.index_copy_(0, rows, y)
        scores = (y @ cache.t() * 0.5).masked_fill(cache[:, 0] > 3, -1e9).softmax(-1)
        return torch.cat([scores @ cache, x.pow(2).mean(-1, keepdim=True).rsqrt() * x], -1), scores.argmax(-1)


torch.manual_seed(0)
model = Block()
call = airgraph.inference.cache_compile(model.forward, cache_dir=sys.argv[1])
with torch.no_grad():
    for rows in (2, 3):
        x, cache, index = torch.rand(rows, 8), torch.zeros(5, 8), torch.arange(rows)
        twin = cache.clone()
        given, expected = call(x, cache, index), model(x, twin, index)
        assert torch.allclose(given[0], expected[0], atol=1e-6) and torch.equal(given[1], expected[1])
        assert torch.allclose(cache, twin)
tracing = ("torch._dynamo", "torch._inductor", "torch.fx.experimental.symbolic_shapes", "sympy")
print(call.counts().traces, *(name in sys.modules for name in tracing))
"""


def test_a_start_from_files_imports_nothing_that_only_tracing_needs(tmp_path: Any) -> None:
    script = tmp_path / "script.py"
    script.write_text(_SECOND_START)
    said = []
    # What the first one imports is not in question.
    for run in (run_command, start_command):
        done = run(str(script), str(tmp_path / "cache"))
        assert done.returncode == 0, done.stderr[-3000:]
        said.append(done.stdout.split())
    assert said == [["1", *["True"] * 4], ["0", *["False"] * 4]]


def test_arguments_by_name_are_not_overlooked() -> None:
    x, y = torch.ones(3, 4), torch.ones(2, 3, 4)
    assert _check(_aten.sum.dim_IntList, x, [1], keepdim=True)
    assert _check(_aten.sum.dim_IntList, x, dim=[1])
    assert _check(_aten.add.Tensor, x, other=y)
    assert _check(_aten.cat.default, [x, x], dim=1)
    assert _check(_aten.sum.dim_IntList, x, [1], True, dtype=torch.float64)


@pytest.mark.parametrize("name", ["add", "mul", "pow", "eq", "bitwise_and", "where"])
def test_operands_that_are_cast_first(name: str) -> None:
    op = getattr(getattr(_aten, name), {"pow": "Tensor_Tensor", "where": "self"}.get(name, "Tensor"))
    dtypes = [torch.int64, torch.int32] if name == "bitwise_and" else [torch.float32, torch.float64, torch.int64]
    for a, b in itertools.product(dtypes, dtypes):
        operands = itertools.product(_layouts(3, 4, dtype=a), _layouts(3, 4, dtype=b))
        for left, right in operands:
            condition = [torch.ones(3, 4, dtype=torch.bool).t().contiguous().t()] if name == "where" else []
            _check(op, *condition, left, right)
        for expanded in (torch.ones(4, dtype=a).expand(3, 4), torch.ones(3, 1, dtype=a).expand(3, 4)):
            condition = [torch.ones(3, 1, dtype=torch.bool).expand(3, 4)] if name == "where" else []
            _check(op, *condition, expanded, torch.ones(4, 3, dtype=b).t())
            _check(op, *condition, torch.ones(4, 3, dtype=b).t(), expanded)


def test_a_cat_of_tensors_in_two_orders_at_once() -> None:
    image = torch.arange(18.0).as_strided((2, 1, 3, 3), (9, 1, 3, 1))
    volume = torch.ones(2, 1, 3, 3, 3).contiguous(memory_format=torch.channels_last_3d)
    for each in (image, volume):
        _check(_aten.cat.default, [each, each], 1)
        _check(_aten.cat.default, [each.contiguous(), each], 0)


def test_the_largest_of_nothing_is_an_error() -> None:
    graph = airgraph.cpu.CPUGraph()
    with pytest.raises(CaptureError, match="no value for an empty tensor"), airgraph.cpu.graph(graph):
        torch.ones(0).max()
    for op in (torch.max, torch.min):
        call = torch.compile(op, backend="airgraph")
        with torch.no_grad(), pytest.warns(UserWarning, match="no value for an empty tensor"):
            with pytest.raises(RuntimeError, match="Expected reduction dim"):
                call(torch.ones(0))
