"""Passes that make operators of our own, on graphs whose streams divide what they look for: nothing moves across an
event, and results stay."""

from __future__ import annotations

import copy
import operator
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from airgraph.options import Options
from airgraph.passes.pipeline import run_passes
from airgraph.passes.races import insert_waits, races_in
from airgraph.program.nodes import is_view
from airgraph.program.stream_marks import is_mark
from airgraph.program.streams import put_on, stream_of, streams_of
from airgraph.runtime.engine.loading import engine_status

pytestmark = pytest.mark.skipif(not engine_status().loaded, reason="the native engine is not here")

_CASES, _FULL_CASES = 40, 2000


def _quantised(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    return (x @ weight.t().to(x.dtype)) * scale


def _grouped(x: Tensor, numbers: Tensor, scale: Tensor) -> Tensor:
    floats = numbers.view(40, 3, 32).to(x.dtype) * scale.view(40, 3, 1)
    return F.linear(x, floats.view(40, 96))


def _shifted(x: Tensor, weight: Tensor) -> Tensor:
    unsigned = (x.to(torch.int32) + 128).to(torch.uint8)
    return torch._int_mm(unsigned, weight.t()) - weight.t().sum(dim=0, keepdim=True, dtype=torch.int32) * 128


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    keys, values = (x[:, :, None].expand(1, 2, 3, 16, 8).reshape(1, 6, 16, 8) for x in (k, v))
    return F.scaled_dot_product_attention(q, keys, values) * 2


def _rows(x: Tensor, weight: Tensor, up: Tensor) -> Tensor:
    normed = weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
    return F.silu(normed) * up + torch.cat((-x[..., 32:], x[..., :32]), dim=-1)


def _written(x: Tensor, weight: Tensor, up: Tensor) -> Tensor:
    product = F.silu(x @ weight) * up
    x.copy_(product.relu() + 1)
    return product @ weight


def _int8(*shape: int) -> Tensor:
    return torch.randint(-128, 128, shape, dtype=torch.int8)


# The program, its arguments, and the pass that finds something in it.
_PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], Sequence[Tensor]], str]] = {
    "int8 weights": (
        _quantised, lambda: (torch.randint(-8, 9, (2, 24)).float(), _int8(40, 24), torch.rand(40)), "mixed_products",
    ),
    "groups": (_grouped, lambda: (torch.randn(2, 96), _int8(40, 96), torch.rand(40, 3)), "grouped_products"),
    "int8 rows": (_shifted, lambda: (_int8(2, 96), _int8(40, 96)), "int_products"),
    "attention": (
        _attention, lambda: (torch.randn(1, 6, 1, 8), torch.randn(1, 2, 16, 8), torch.randn(1, 2, 16, 8)),
        "decode_attention",
    ),
    "rows": (_rows, lambda: (torch.randn(4, 64), torch.randn(64), torch.randn(4, 64)), "fused_rows"),
    "a written argument": (
        _written, lambda: (torch.randn(12, 64), torch.randn(64, 64) / 8, torch.randn(12, 64)), "fused_rows",
    ),
}  # fmt: skip


def _traced(name: str) -> GraphModule:
    program, make, _ = _PROGRAMS[name]
    return make_fx(torch.func.functionalize(program, remove="mutations"), tracing_mode="fake")(*make())


def _divided(gm: GraphModule, choose: random.Random) -> None:
    """Nodes on streams by chance, in runs, and all the waits that they need."""
    stream = None
    for node in [each for each in gm.graph.nodes if each.op == "call_function"]:
        if choose.random() < 0.35:
            stream = choose.choice([None, "a", "b"])
        put_on(node, stream_of(node.args[0]) if node.target is operator.getitem else stream)
    insert_waits(gm, races_in(gm.graph))
    gm.recompile()


def _calls(gm: GraphModule) -> int:
    return sum(node.op == "call_function" and not (is_mark(node.target) or is_view(node)) for node in gm.graph.nodes)


@torch.no_grad()
@pytest.mark.parametrize("name", _PROGRAMS)
def test_an_operator_does_not_take_what_another_stream_computes(name: str) -> None:
    """Divided in two, wherever that is, not all goes that goes on one stream."""
    traced = _traced(name)
    whole = GraphModule(traced, copy.deepcopy(traced.graph))
    run_passes(whole, Options())
    calls = sum(node.op == "call_function" for node in traced.graph.nodes)
    left = []
    for cut in range(1, calls):
        gm = GraphModule(traced, copy.deepcopy(traced.graph))
        for position, node in enumerate([each for each in gm.graph.nodes if each.op == "call_function"]):
            put_on(node, "a" if position < cut else None)
        insert_waits(gm, races_in(gm.graph))
        gm.recompile()
        run_passes(gm, Options())
        left.append(_calls(gm))
    assert max(left) > _calls(whole), left
    if name not in ("attention", "a written argument"):
        # Their last call is part of what is found.
        assert left[-1] > _calls(whole), left


def _check_close(ours: Sequence[Any], theirs: Sequence[Any], graphs: str) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4, msg=lambda text: f"{graphs}\n{text}")


@torch.no_grad()
@pytest.mark.parametrize("name", _PROGRAMS)
def test_they_find_what_is_on_one_stream(name: str) -> None:
    gm = _traced(name)
    assert run_passes(gm, Options()).get(_PROGRAMS[name][2], 0) > 0


@torch.no_grad()
@pytest.mark.parametrize("name", _PROGRAMS)
def test_results_stay_and_no_race_is_made(name: str, request: pytest.FixtureRequest) -> None:
    choose, traced = random.Random(0), _traced(name)
    divided = 0
    for case in range(_FULL_CASES if request.config.getoption("--full-sweep") else _CASES):
        torch.manual_seed(case)
        gm = GraphModule(traced, copy.deepcopy(traced.graph))
        _divided(gm, choose)
        divided += len(streams_of(gm.graph)) > 1
        given = _PROGRAMS[name][1]()
        twins = [each.clone() for each in given]
        before = str(gm.graph)
        expected = gm(*twins)
        run_passes(gm, Options())
        gm.recompile()
        assert not races_in(gm.graph), f"{before}\n{gm.graph}"
        # Without races the order of the graph is as good as any.
        out = gm(*given)
        _check_close([out, *given], [expected, *twins], f"{before}\n{gm.graph}")
    assert divided > 10
