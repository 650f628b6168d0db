"""Random programs on several streams."""

from __future__ import annotations

import operator

import torch
from hypothesis import strategies as st
from torch import nn
from torch.fx import Graph, GraphModule

from airgraph.program.stream_marks import event_of, record_of, wait_for
from airgraph.program.streams import put_on

__all__ = ["STEPS", "copied_at_the_end", "graph_of", "module_of"]

_aten = torch.ops.aten
_OF_SEVERAL = (_aten.sort.default, _aten._foreach_mul.Scalar)
_STREAMS = (None, "a", "b", "c")
# Of a program: what a step does, on which stream, and numbers that choose its operands.
STEPS = st.tuples(
    st.sampled_from(
        [
            "add",
            "relu",
            "clone",
            "add_",
            "view",
            "record",
            "wait",
            "cat",
            "to its dtype",
            "mul 1",
            "sort",
            "both doubled",
        ]
    ),
    st.sampled_from(_STREAMS),
    st.integers(0, 99),
    st.integers(0, 99),
)


def graph_of(steps: list[tuple[str, str | None, int, int]]) -> Graph:
    graph = Graph()
    values = [graph.placeholder("x"), graph.placeholder("y")]
    recorded: list[str] = []
    for kind, stream, first, second in steps:
        left, right = values[first % len(values)], values[second % len(values)]
        if kind == "record":
            # One event may be recorded several times.
            recorded.append(f"event {first % 2}")
            node = record_of(graph, recorded[-1])
        elif kind == "wait":
            if not recorded:
                continue
            node = wait_for(graph, recorded[first % len(recorded)])
        elif kind == "add_":
            node = graph.call_function(_aten.add_.Tensor, (left, right))
        elif kind == "view":
            node = graph.call_function(_aten.view.default, (left, [-1]))
        elif kind == "cat":
            # A half of each.
            halves = [
                graph.call_function(_aten.slice.Tensor, (left, 0, 0, 32)),
                graph.call_function(_aten.slice.Tensor, (right, 0, 32, 64)),
            ]
            for half in halves:
                put_on(half, stream)
            node = graph.call_function(_aten.cat.default, (halves,))
        elif kind in ("sort", "both doubled"):
            # Of several results.
            whole = (
                graph.call_function(_aten.sort.default, (left,))
                if kind == "sort"
                else graph.call_function(_aten._foreach_mul.Scalar, ([left, right], 2.0))
            )
            put_on(whole, stream)
            node = graph.call_function(operator.getitem, (whole, 0))
            if kind == "both doubled":
                values.append(graph.call_function(operator.getitem, (whole, 1)))
                put_on(values[-1], stream)
        elif kind == "to its dtype":
            node = graph.call_function(_aten._to_copy.default, (left,), {"dtype": torch.float32})
        elif kind == "mul 1":
            node = graph.call_function(_aten.mul.Tensor, (left, 1))
        else:
            target = {"add": _aten.add.Tensor, "relu": _aten.relu.default, "clone": _aten.clone.default}[kind]
            node = graph.call_function(target, (left, right) if kind == "add" else (left,))
        put_on(node, stream)
        if kind not in ("record", "wait"):
            values.append(node)
    graph.output(tuple(values[-2:]))
    return graph


def module_of(steps: list[tuple[str, str | None, int, int]]) -> GraphModule:
    return GraphModule(nn.Module(), graph_of(steps))


def copied_at_the_end(gm: GraphModule, first: int, second: int, device: str = "cpu") -> None:
    """Write both arguments as functionalization has it: a copy of what is made, at the end; values are known."""
    output = gm.graph.output_node()
    x, y = gm.graph.find_nodes(op="placeholder")
    made = [node for node in gm.graph.nodes if node.op == "call_function" and event_of(node) is None]
    values = [node for node in made if node.target not in (_aten.slice.Tensor, *_OF_SEVERAL)]
    # What is handed out is made by itself: an argument that is returned is AOTAutograd's business.
    results = []
    for node in output.args[0]:
        with gm.graph.inserting_before(output):
            results.append(gm.graph.call_function(_aten.mul.Tensor, (node, 2)))
    if values:
        for target, number in ((x, first), (y, second)):
            with gm.graph.inserting_before(output):
                gm.graph.call_function(_aten.copy_.default, (target, values[number % len(values)]))
    output.args = (tuple(results),)
    for node in gm.graph.nodes:
        if node.op == "placeholder" or (node.op == "call_function" and event_of(node) is None):
            value = torch.empty(32 if node.target is _aten.slice.Tensor else 64, device=device)
            node.meta["val"] = (value, value.clone()) if node.target in _OF_SEVERAL else value
    gm.recompile()
