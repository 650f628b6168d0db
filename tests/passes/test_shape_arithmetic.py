"""Sizes that are known numbers are folded; the rest of the rules are golden."""

import operator

import torch
from torch.fx import Graph, GraphModule

from airgraph.passes.shape_arithmetic import fold_shape_arithmetic


def test_known_sizes_become_numbers_also_in_lists_and_outputs() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(4, 6, device="meta")
    size = graph.call_function(torch.ops.aten.sym_size.int, (x, 0))
    size.meta["val"] = 4
    twice = graph.call_function(operator.mul, (size, 2))
    twice.meta["val"] = 8
    view = graph.call_function(torch.ops.aten.view.default, (x, [twice, 3]))
    graph.output((view, twice))
    gm = GraphModule(torch.nn.Module(), graph)
    assert fold_shape_arithmetic(gm) == 2
    gm.recompile()
    out, number = gm(torch.ones(4, 6))
    assert out.shape == (8, 3) and number == 8
    assert [n.name for n in gm.graph.nodes if n.op == "call_function"] == [view.name]


def test_a_number_that_is_read_from_a_tensor_stays() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty((), device="meta")
    item = graph.call_function(torch.ops.aten._local_scalar_dense.default, (x,))
    item.meta["val"] = 4
    graph.output((item,))
    assert fold_shape_arithmetic(GraphModule(torch.nn.Module(), graph)) == 0
