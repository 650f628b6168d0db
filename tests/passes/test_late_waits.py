"""Where a graph waits for a collective, and what may happen to what the collective reads until then."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node

from airgraph.passes.late_waits import wait_where_used
from airgraph.passes.races import races_in
from airgraph.passes.reinplace_inputs import reinplace_inputs
from airgraph.passes.reinplace_intermediates import reinplace_intermediates
from airgraph.program.stream_marks import record_of, wait_for
from airgraph.program.streams import put_on, stream_of

pytest.importorskip("torch.distributed._functional_collectives")

_aten, _c10d = torch.ops.aten, torch.ops._c10d_functional

GATHERS = {
    "all_gather_into_tensor": (2, "0"),
    "reduce_scatter_tensor": ("sum", 2, "0"),
    "all_to_all_single": ([], [], "0"),
}
COPIES = {"all_reduce": ("sum", "0"), "broadcast": (0, "0")}


class _Program:
    """A graph that is written down step by step, its values of one form."""

    def __init__(self) -> None:
        self.graph = Graph()

    def input(self) -> Node:
        return self._formed(self.graph.placeholder("x"))

    def call(self, target: torch._ops.OpOverload, *args: object, stream: str | None = None) -> Node:
        node = self._formed(self.graph.call_function(target, args))
        put_on(node, stream)
        return node

    def collective(self, name: str, read: Node, stream: str | None = None) -> tuple[Node, Node]:
        """The operator and the wait for it, which stands behind it as in a trace."""
        started = self.call(getattr(_c10d, name).default, read, *{**GATHERS, **COPIES}[name], stream=stream)
        return started, self.call(_c10d.wait_tensor.default, started, stream=stream)

    def module(self, *outputs: Node) -> GraphModule:
        self.graph.output(outputs)
        return GraphModule(nn.Module(), self.graph)

    def _formed(self, node: Node) -> Node:
        node.meta["val"] = torch.empty(4, device="meta")
        return node


def _order(gm: GraphModule, *nodes: Node) -> list[Node]:
    return [node for node in gm.graph.nodes if node in nodes]


@pytest.mark.parametrize("name", [*GATHERS, *COPIES])
def test_it_is_before_the_first_use_or_the_first_write_of_what_is_read(name: str) -> None:
    program = _Program()
    x = program.input()
    _, wait = program.collective(name, x)
    beside = program.call(_aten.exp.default, x)
    written = program.call(_aten.copy_.default, x, beside)
    used = program.call(_aten.sin.default, wait)
    gm = program.module(used, beside)
    assert wait_where_used(gm) == 1
    expected = [beside, wait, written, used] if name in GATHERS else [beside, written, wait, used]
    assert _order(gm, wait, beside, written, used) == expected
    # And stays there.
    assert wait_where_used(gm) == 0


def test_with_streams_it_stays_behind_its_collective_where_that_is_written() -> None:
    program = _Program()
    x = program.input()
    started, wait = program.collective("all_gather_into_tensor", x, "comm")
    beside = program.call(_aten.exp.default, x)
    written = program.call(_aten.copy_.default, x, beside)
    used = program.call(_aten.sin.default, wait)
    gm = program.module(used)
    assert wait_where_used(gm) == 0
    assert _order(gm, started, wait, written) == [started, wait, written]


def test_what_is_only_handed_out_is_waited_for_on_its_own_stream() -> None:
    """That has ended when the graph ends: nothing else orders it, and no race is seen."""
    program = _Program()
    x = program.input()
    _, wait = program.collective("all_reduce", x, "comm")
    beside = program.call(_aten.exp.default, x)
    gm = program.module(wait, beside)
    assert wait_where_used(gm) == 1
    assert _order(gm, wait, beside) == [beside, wait] and stream_of(wait) == "comm"
    assert not races_in(gm.graph)


@pytest.mark.parametrize("name", [*GATHERS, *COPIES])
def test_an_input_is_not_written_while_it_is_read(name: str) -> None:
    program = _Program()
    x = program.input()
    _, wait = program.collective(name, x)
    new = program.call(_aten.add.Tensor, x, 1)
    used = program.call(_aten.sin.default, wait)
    program.call(_aten.copy_.default, x, new)
    gm = program.module(used)
    wait_where_used(gm)
    assert reinplace_inputs(gm) == (name in COPIES)


@pytest.mark.parametrize("name", [*GATHERS, *COPIES])
def test_an_intermediate_is_not_written_while_it_is_read(name: str) -> None:
    program = _Program()
    made = program.call(_aten.exp.default, program.input())
    _, wait = program.collective(name, made)
    program.call(_aten.sin.default, made)
    used = program.call(_aten.cos.default, wait)
    gm = program.module(used)
    wait_where_used(gm)
    reinplace_intermediates(gm)
    targets = {str(node.target) for node in gm.graph.nodes}
    assert ("aten.sin_.default" in targets) == (name in COPIES)


@pytest.mark.parametrize("name", [*GATHERS, *COPIES])
@pytest.mark.parametrize("after_the_wait", [True, False])
def test_a_write_on_another_stream_is_ordered_after_the_wait(name: str, after_the_wait: bool) -> None:
    program = _Program()
    x = program.input()
    started = program.call(getattr(_c10d, name).default, x, *{**GATHERS, **COPIES}[name], stream="comm")
    if not after_the_wait:
        put_on(record_of(program.graph, "begun"), "comm")
    wait = program.call(_c10d.wait_tensor.default, started, stream="comm")
    if after_the_wait:
        put_on(record_of(program.graph, "begun"), "comm")
    put_on(wait_for(program.graph, "begun"), None)
    written = program.call(_aten.add_.Tensor, x, 1)
    gm = program.module(wait)
    races = [(race.first, race.second) for race in races_in(gm.graph)]
    assert races == ([] if after_the_wait or name in COPIES else [(wait, written)])


@pytest.mark.parametrize("ordered", [True, False])
def test_an_assertion_reads_what_it_is_about(ordered: bool) -> None:
    program = _Program()
    made = program.call(_aten.exp.default, program.input())
    if ordered:
        put_on(record_of(program.graph, "made"), None)
        put_on(wait_for(program.graph, "made"), "side")
    told = program.call(_aten._assert_async.msg, made, "is it so?", stream="side")
    gm = program.module(made)
    assert [(race.first, race.second) for race in races_in(gm.graph)] == ([] if ordered else [(made, told)])


def test_sizes_are_there_without_a_wait() -> None:
    program = _Program()
    made = program.call(_aten.exp.default, program.input())
    program.call(_aten.sym_size.int, made, 0, stream="side")
    assert not races_in(program.module(made).graph)
