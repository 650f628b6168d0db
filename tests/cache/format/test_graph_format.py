"""A graph that was written and read computes what it did before; what cannot have been written is refused."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx import Graph, GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from airgraph.cache.format.graph import graph_from, graph_to, value_from, value_to
from airgraph.errors import CacheError, Unwritable
from airgraph.program.stream_marks import PRIORITY, SCOPE
from airgraph.program.streams import priorities_of

sys.path.insert(0, str(Path(__file__).parents[2] / "passes"))

from random_programs import make_inputs, make_program

# The first 15 have all operators and forms of arguments that the first 60 have.
PROGRAMS, FULL_PROGRAMS = 20, 60


def through_text(gm: GraphModule) -> GraphModule:
    return graph_from(json.loads(json.dumps(graph_to(gm), allow_nan=False)))


@torch.no_grad()
def test_random_programs_are_the_same_after_a_round_trip(pytestconfig: pytest.Config) -> None:
    for seed in range(FULL_PROGRAMS if pytestconfig.getoption("--full-sweep") else PROGRAMS):
        try:
            gm = make_fx(make_program(seed, 30), tracing_mode="fake")(*make_inputs(0))
        except (RuntimeError, ValueError):
            continue
        again = through_text(gm)
        assert graph_to(again) == graph_to(gm)
        for ours, theirs in zip(again(*make_inputs(seed)), gm(*make_inputs(seed)), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        -2.5,
        "text",
        1 + 2j,
        [1, [2]],
        (1, (2, None)),
        torch.float16,
        torch.strided,
        torch.channels_last,
        torch.device("cpu"),
        torch.device("meta"),
        [(), [], ("a",)],
    ],
)
def test_values_come_back(value: Any) -> None:
    back = value_from(json.loads(json.dumps(value_to(value), allow_nan=False)), {})
    assert back == value and type(back) is type(value)


def test_numbers_that_json_does_not_have() -> None:
    for value in (math.inf, -math.inf, math.nan):
        assert repr(value_from(json.loads(json.dumps(value_to(value), allow_nan=False)), {})) == repr(value)


@pytest.mark.parametrize("value", [object(), {1: 2}, {1, 2}, b"bytes", torch.ones(1), slice(1), len])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(Unwritable, match="a value of type"):
        value_to(value)


@pytest.mark.parametrize(
    "data",
    [
        {"node": "missing"},
        {"dtype": "Tensor"},
        {"dtype": "load"},
        {"layout": "float32"},
        {"device": "nowhere"},
        {"float": "1e5"},
        {"call": "os.system"},
        {"node": "a", "dtype": "float32"},
        {},
        {"tuple": "ab"},
    ],
)
def test_unknown_values_are_refused_when_read(data: Any) -> None:
    with pytest.raises(CacheError):
        value_from(data, {})


def test_constants_come_back_bit_by_bit() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn):
        constant = torch.tensor([[0, 1, 5], [7, 2, 3]]).to(dtype)
        root = torch.nn.Module()
        root.register_buffer("held", constant)
        graph = Graph()
        graph.output((graph.get_attr("held"),))
        (back,) = through_text(GraphModule(root, graph))()
        assert back.dtype == dtype and back.shape == constant.shape
        assert torch.equal(back.contiguous().view(torch.uint8), constant.contiguous().view(torch.uint8))


def test_a_large_constant_is_refused() -> None:
    root = torch.nn.Module()
    root.register_buffer("held", torch.zeros(1 << 19))
    graph = Graph()
    graph.output((graph.get_attr("held"),))
    with pytest.raises(Unwritable, match="the constant held of 2097152 bytes; make it a buffer"):
        graph_to(GraphModule(root, graph))


def _simple() -> dict[str, Any]:
    return graph_to(make_fx(lambda x: torch.relu(x) + 1)(torch.ones(2)))


def _set(target: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: data["nodes"][1].__setitem__(target, value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_set("target", "aten.nothing.default"), "node 'relu': the operator aten.nothing.default is not registered"),
        (_set("target", "aten.relu.other"), "is not registered"),
        (_set("target", "os.system"), "is not registered"),
        (_set("target", "builtins.exec"), "is not registered"),
        (_set("target", "aten.from_file.default"), "aten::from_file is not allowed in a cache"),
        (_set("target", "aten.save.default"), "aten::save is not allowed"),
        (_set("target", "prim.Print.default"), "prim::Print is not allowed"),
        (_set("target", "inductor.resize_storage_bytes_.default"), "is not allowed"),
        (_set("target", "profiler._record_function_enter.default"), "is not allowed"),
        (_set("target", "_c10d_functional.isend.default"), "is not allowed"),
        (_set("target", ""), "is not registered"),
        (_set("op", "call_method"), "unknown kind 'call_method'"),
        (_set("op", "call_module"), "unknown kind 'call_module'"),
        (_set("op", "get_attr"), "there is no constant"),
        (_set("name", "arg-1"), "expected a new name"),
        (_set("name", 3), "expected a new name"),
        (_set("name", "class"), "expected a new name"),
        (
            _set("kwargs", {"a=__import__('os').system('true'), b": 1}),
            "has no argument .a=__import__",
        ),
        (_set("kwargs", {"other": 1}), "has no argument 'other'"),
        (_set("target", "aten.manual_seed.default"), "is not registered|not one of PyTorch's dispatcher"),
        (_set("target", "image.write_file.default"), "is not allowed|not registered"),
        (_set("args", [{"node": "add"}]), "no such value: node 'add'"),
        (lambda data: data["nodes"].append(data["nodes"][1]), "expected a new name"),
        (lambda data: data.update(outputs=None), "the outputs are not a list"),
        (lambda data: data.update(constants={"a.b": {}}), "constant 'a.b' is not a name"),
        (
            lambda data: data.update(
                constants={"a": {"dtype": "float32", "shape": [2], "device": "cpu", "bytes": "AA=="}}
            ),
            "a constant is damaged",
        ),
    ],
)
def test_a_graph_that_nobody_wrote_is_refused(damage: Callable[[dict[str, Any]], None], message: str) -> None:
    data = _simple()
    damage(data)
    with pytest.raises(CacheError, match=message):
        graph_from(data)


def test_subgraphs_and_python_functions_are_refused() -> None:
    for gm in (
        make_fx(lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)))(torch.ones(2)),
        torch.fx.symbolic_trace(lambda x: torch.relu(x)),
        torch.fx.symbolic_trace(lambda x: x.relu()),
    ):
        with pytest.raises(Unwritable):
            graph_to(gm)


def test_a_stream_keeps_its_priority() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    made = graph.call_function(torch.ops.aten.relu.default, (x,))
    made.meta["custom"] = {SCOPE: "side", PRIORITY: -1}
    graph.output((made,))
    read = graph_from(graph_to(GraphModule(torch.nn.Module(), graph))).graph
    assert priorities_of(read) == priorities_of(graph) == {"side": -1}
