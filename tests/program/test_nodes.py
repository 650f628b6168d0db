"""What a node is a view of, what it gives and writes, and the keys that this package notes on it."""

import ast
import operator
from pathlib import Path
from typing import get_type_hints

import pytest
import torch
from torch.fx import Graph, Node

import airgraph
from airgraph.program.nodes import Notes, computed, is_view, nodes_in, without_views, written_nodes
from airgraph.program.trees import leaves, leaves_of, mapped

_aten = torch.ops.aten
# Keys that PyTorch gives a meaning.
_TORCHS = {"val", "stack_trace", "custom", "example_value", "desc"}


def _graph() -> dict[str, Node]:
    graph = Graph()
    x = graph.placeholder("x")
    parts = graph.call_function(_aten.split.Tensor, (x, 2))
    first = graph.call_function(torch.ops.aten.select.int, (x, 0, 0))
    part = graph.call_function(operator.getitem, (parts, 0))
    largest = graph.call_function(_aten.topk.default, (part, 1))
    value = graph.call_function(operator.getitem, (largest, 0))
    made = graph.call_function(_aten.relu.default, (value,))
    put = graph.call_function(_aten.index_put_.default, (made, [None, value], part))
    both = graph.call_function(_aten._foreach_add_.Scalar, ([part, made], 1))
    return {
        "x": x,
        "first": first,
        "part": part,
        "value": value,
        "made": made,
        "put": put,
        "both": both,
        "top": largest,
    }


def test_views_lead_to_what_made_their_memory() -> None:
    nodes = _graph()
    found = {name: without_views(node) for name, node in nodes.items()}
    assert found["first"] is found["part"] is found["x"] is nodes["x"]
    assert found["value"] is nodes["top"]
    assert [is_view(nodes[name]) for name in ("x", "first", "part", "made", "put")] == [False, True, True, False, False]
    assert without_views(3) == 3


def test_what_a_node_writes() -> None:
    nodes = _graph()
    assert written_nodes(nodes["put"]) == [nodes["made"]]
    assert written_nodes(nodes["both"]) == [nodes["part"], nodes["made"]]
    assert written_nodes(nodes["made"]) == written_nodes(nodes["x"]) == []
    assert nodes_in(nodes["put"].args) == [nodes["made"], nodes["value"], nodes["part"]]


def test_what_a_call_gives() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    with pytest.raises(KeyError):
        computed(_aten.t.default, x)
    x.meta["val"] = torch.empty(2, 3, device="meta")
    assert computed(_aten.t.default, x).shape == (3, 2)
    assert computed(_aten.cat.default, [x, torch.empty(1, 3, device="meta")], dim=0).shape == (3, 3)


def test_values_within_values() -> None:
    given = [1, (torch.Size([2, 3]), [torch.ones(1)]), None]
    assert leaves(given)[:3] == [1, 2, 3] and len(leaves(given)) == 5
    assert [each.item() for each in leaves_of(torch.Tensor, given)] == [1.0]
    assert mapped((int, torch.Tensor), lambda each: type(each).__name__, given) == [
        "int", (("int", "int"), ["Tensor"]), None,
    ]  # fmt: skip


def test_the_keys_of_a_node_are_pytorchs_or_notes() -> None:
    used = set()
    for path in Path(airgraph.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                owner, key = node.value, node.slice.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                owner, key = node.func.value, getattr(node.args[0], "value", None)
            else:
                continue
            if isinstance(owner, ast.Attribute) and owner.attr == "meta":
                used.add(key)
            elif isinstance(owner, ast.Call) and getattr(owner.func, "id", "") == "notes":
                assert key in get_type_hints(Notes), path
    assert "val" in used and used <= _TORCHS
