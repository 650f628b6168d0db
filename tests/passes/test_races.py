"""The race check against all the ways in which streams may take their turns, and what it does about races."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_streams import STEPS, copied_at_the_end, graph_of, module_of
from torch import Tensor, nn
from torch.fx import Graph, GraphModule, Node

import airgraph
from airgraph import scope
from airgraph.errors import StreamError
from airgraph.options import Options
from airgraph.passes.pipeline import run_passes
from airgraph.passes.races import insert_waits, races_in
from airgraph.passes.stream_check import check_streams
from airgraph.program.nodes import is_view, written_nodes
from airgraph.program.stream_marks import event_of
from airgraph.program.streams import check_events, put_on, stream_of

_aten = torch.ops.aten


def _memory_of(node: Node) -> Node:
    """What a node of these programs lies in; of several results each is taken out once."""
    while node.target is not operator.getitem and (is_view(node) or node.target is _aten.add_.Tensor):
        node = node.args[0]  # type: ignore[assignment]
    return node


def _made_by(node: Node) -> list[Node]:
    return [each for each in node.users if each.target is operator.getitem] or [node]


def _touches_no_memory(node: Node) -> bool:
    return event_of(node) is not None or is_view(node) or node.target is operator.getitem


def _observations(graph: Graph) -> set[frozenset[tuple[Node, Node, Node | None]]]:
    """Of every order in which the streams may run: who saw and overwrote whose values."""
    lines: dict[str | None, list[Node]] = {}
    awaited: dict[Node, Node] = {}
    latest: dict[str, Node] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        lines.setdefault(stream_of(node), []).append(node)
        event = event_of(node)
        if event is not None and event[1]:
            awaited[node] = latest[event[0]]
        elif event is not None:
            latest[event[0]] = node

    def seen(
        places: dict[str | None, int], done: frozenset[Node], writers: dict[Node, Node]
    ) -> Iterator[frozenset[tuple[Node, Node, Node | None]]]:
        ready = {
            stream: line[places[stream]]
            for stream, line in lines.items()
            if places[stream] < len(line) and awaited.get(line[places[stream]]) in {None, *done}
        }
        if not ready:
            yield frozenset((graph.output_node(), memory, writer) for memory, writer in writers.items())
        # What touches no memory holds nobody up: when it runs makes no difference, so it runs at once.
        quiet = [stream for stream, node in ready.items() if _touches_no_memory(node)][:1]
        for stream in quiet or ready:
            node = ready[stream]
            used = [] if quiet else [_memory_of(each) for each in node.all_input_nodes]
            written = [] if quiet else [_memory_of(each) for each in written_nodes(node)] or _made_by(node)
            events = [(node, memory, writers.get(memory)) for memory in (*used, *written)]
            then = seen(
                {**places, stream: places[stream] + 1}, done | {node}, {**writers, **dict.fromkeys(written, node)}
            )
            yield from (rest.union(events) for rest in then)

    return set(seen(dict.fromkeys(lines, 0), frozenset(), {}))


@settings(max_examples=150)
@given(st.lists(STEPS, max_size=7))
def test_a_race_is_what_some_order_of_the_streams_shows(steps: list[tuple[str, str | None, int, int]]) -> None:
    graph = graph_of(steps)
    races = races_in(graph)
    assert bool(races) == (len(_observations(graph)) > 1)
    module = GraphModule(nn.Module(), graph)
    insert_waits(module, races)
    module.graph.lint()
    check_events(module.graph)
    assert not races_in(module.graph)
    assert len(_observations(module.graph)) == 1


@settings(max_examples=150)
@given(st.lists(STEPS, max_size=12), st.integers(0, 99), st.integers(0, 99))
@pytest.mark.filterwarnings("ignore:airgraph. random")
def test_passes_keep_results_and_make_no_race(
    steps: list[tuple[str, str | None, int, int]], first: int, second: int
) -> None:
    gm = module_of(steps)
    copied_at_the_end(gm, first, second)
    given_to = [torch.randn(64), torch.randn(64)]
    expected = [tensor.clone() for tensor in given_to]
    expected += gm(*expected)
    run_passes(gm, Options(), check=lambda checked: check_streams(checked, "fix", "random"))
    assert not races_in(gm.graph), gm.graph
    # Without races the order of the program is as good as any.
    made = [*given_to, *gm(*given_to)]
    torch.testing.assert_close(made, expected, msg=lambda text: f"{gm.graph}\n{text}")


@settings(max_examples=60)
@given(st.lists(STEPS, max_size=12))
def test_each_wait_is_needed(steps: list[tuple[str, str | None, int, int]]) -> None:
    for left_out in range(len(races_in(graph_of(steps)))):
        gm = module_of(steps)
        races = races_in(gm.graph)
        insert_waits(gm, [race for number, race in enumerate(races) if number != left_out])
        assert races_in(gm.graph), (left_out, gm.graph)


def test_waits_are_as_late_and_as_few_as_they_can_be() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    made = graph.call_function(_aten.relu.default, (x,))
    again = graph.call_function(_aten.exp.default, (made,))
    beside = graph.call_function(_aten.sin.default, (x,))
    both = graph.call_function(_aten.add.Tensor, (made, again))
    later = graph.call_function(_aten.mul.Tensor, (made, both))
    graph.output((beside, later))
    for node, stream in ((beside, "a"), (both, "a"), (later, "a")):
        put_on(node, stream)
    module = GraphModule(nn.Module(), graph)
    # Of two that are read, it is enough to wait for the later.
    (race,) = races = races_in(graph)
    assert (race.first, race.second) == (again, both)
    insert_waits(module, races)
    names = [node.name for node in module.graph.nodes]
    assert names.index("record_event_default") == names.index("exp_default") + 1
    assert names.index("wait_event_default") == names.index("add_tensor") - 1
    assert names.index("sin_default") < names.index("wait_event_default")


def _race_in_a_model(x: Tensor) -> Tensor:
    made = x.exp()
    with scope.stream("side"):
        beside = made.sin()
    return beside + 1


@torch.no_grad()
def test_fix_warns_once_and_names_both_sides() -> None:
    call = torch.compile(_race_in_a_model, backend="airgraph", fullgraph=True)
    x = torch.rand(3)
    with pytest.warns(UserWarning) as caught:
        torch.testing.assert_close(call(x), _race_in_a_model(x))
        call(x)
    (message,) = [str(each.message) for each in caught if "orders the two" in str(each.message)]
    line = _race_in_a_model.__code__.co_firstlineno
    assert f"aten.exp.default on the default stream ({__file__}:{line + 1})" in message
    assert f"aten.sin.default on stream 'side' ({__file__}:{line + 3})" in message
    # The addition on the default stream reads what the side stream makes.
    assert "1 more pair" in message and "now waits" in message


@torch.no_grad()
@pytest.mark.parametrize("policy", ["warn", "error", "off"])
def test_what_else_the_option_can_be(policy: str) -> None:
    call = torch.compile(_race_in_a_model, backend="airgraph", fullgraph=True, options={"stream_check": policy})
    x = torch.rand(3)
    if policy == "error":
        with pytest.raises(StreamError, match=r"exp.*on the default stream.*sin.*on stream 'side'"):
            call(x)
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.testing.assert_close(call(x), _race_in_a_model(x))
    found = [str(each.message) for each in caught if "orders the two" in str(each.message)]
    assert len(found) == (policy == "warn")
    assert all("may differ" in each for each in found)


@torch.no_grad()
def test_a_race_of_a_cached_graph_is_said_at_each_start(tmp_path: Path) -> None:
    for _ in range(2):
        airgraph.reset()
        options = {"stream_check": "warn"}
        call = airgraph.inference.cache_compile(_race_in_a_model, cache_dir=tmp_path, options=options)
        with pytest.warns(UserWarning, match=r"orders the two.*may differ"):
            call(torch.rand(3))


class _Written(nn.Module):
    """Writes an argument on a side stream; who waits for the event reads it on the default one."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.written = airgraph.Event("read"), airgraph.Event("written")

    def forward(self, cache: Tensor, x: Tensor) -> Tensor:
        before = cache.sum()
        self.read.record()
        with scope.stream("side"):
            self.read.wait()
            cache.add_(x)
            self.written.record()
        self.written.wait()
        return cache * before


@torch.no_grad()
def test_an_argument_is_written_on_the_stream_that_writes_it(recwarn: pytest.WarningsRecorder) -> None:
    graphs: list[Graph] = []

    def look(gm: GraphModule, example_inputs: object, options: object) -> None:
        graphs.append(gm.graph)

    options = {"post_grad_custom_post_pass": look, "input_inplace_pass": False}
    call = torch.compile(_Written(), backend="airgraph", fullgraph=True, options=options)
    given, expected = torch.rand(3), torch.rand(3)
    given.copy_(expected)
    x = torch.rand(3)
    torch.testing.assert_close(call(given, x), _Written()(expected, x))
    torch.testing.assert_close(given, expected)
    on_side = [node.target for node in graphs[0].nodes if stream_of(node) == "side"]
    assert on_side.index(_aten.copy_.default) < on_side.index(torch.ops.airgraph.record_event.default)
    assert not [each for each in recwarn if "orders the two" in str(each.message)]


@torch.no_grad()
def test_equal_work_on_two_streams_stays_apart() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        with scope.stream("a"):
            first = x.exp() * 2
        with scope.stream("b"):
            second = x.exp() * 3
        return first, second

    call = torch.compile(program, backend="airgraph", fullgraph=True)
    call(torch.rand(3))
    assert airgraph.explain().to_dict()["graphs"][0]["nodes"] == 4


class _KeyCache(nn.Module):
    """A step of decoding: the cache is written on a side stream and read on the default one."""

    def __init__(self, ordered: bool) -> None:
        super().__init__()
        self.ordered = ordered
        self.read, self.written = airgraph.Event("read"), airgraph.Event("written")

    def forward(self, cache: Tensor, position: Tensor, new: Tensor) -> Tensor:
        before = cache.sum()
        self.read.record()
        with scope.stream("cache"):
            if self.ordered:
                self.read.wait()
            cache.index_copy_(0, position, new * 2)
            self.written.record()
        beside = new.sin()
        self.written.wait()
        return cache.sum() + before + beside


@torch.no_grad()
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.filterwarnings("ignore:.*orders the two")
def test_an_argument_is_written_in_place_where_the_order_proves_it(
    ordered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model = _KeyCache(ordered)
    cache, position, new = torch.zeros(512, 64), torch.tensor([3]), torch.ones(1, 64)
    with caplog.at_level("INFO", logger="airgraph.passes"):
        call = torch.compile(model, backend="airgraph", fullgraph=True)
        for _ in range(3):
            twin = cache.clone()
            torch.testing.assert_close(call(cache, position, new), model(twin, position, new))
            assert torch.equal(cache, twin)
    (row,) = airgraph.explain().to_dict()["graphs"]
    assert row["streams"] == 2
    # A cache of 512 rows, or the row that is new.
    assert (row["copied_nbytes"] < cache.nbytes) is ordered
    assert ("nothing orders sum" in caplog.text) is not ordered


class _Overlapping(nn.Module):
    """One of two buffers that lie on one another is written on a side stream."""

    def __init__(self) -> None:
        super().__init__()
        both = torch.zeros(8)
        self.register_buffer("written", both[:6])
        self.register_buffer("read", both[2:])

    def forward(self, x: Tensor) -> Tensor:
        with scope.stream("side"):
            self.written.add_(x)
        return self.read * 2


def _overlapping_arguments(written: Tensor, read: Tensor) -> Tensor:
    with scope.stream("side"):
        written.add_(1)
    return read * 2


def _of_numpy() -> tuple[Tensor, Tensor]:
    array = numpy.zeros(6, dtype=numpy.float32)
    return torch.from_numpy(array), torch.from_numpy(array)


def _views_of_one() -> tuple[Tensor, Tensor]:
    both = torch.zeros(8)
    return both[:6], both[2:]


@torch.no_grad()
@pytest.mark.parametrize("make", [_views_of_one, _of_numpy])
def test_arguments_that_share_memory_are_used_in_the_order_of_the_program(
    make: Callable[[], tuple[Tensor, Tensor]],
) -> None:
    """Of them the graph knows nothing: it runs eagerly."""
    call = torch.compile(_overlapping_arguments, backend="airgraph", fullgraph=True, options={"stream_check": "error"})
    ours, twins = make(), make()
    with pytest.warns(UserWarning, match="runs eagerly .* written is written and shares memory with read"):
        result = call(*ours)
    assert torch.equal(result, _overlapping_arguments(*twins)) and torch.equal(ours[1], twins[1])
    assert not [row for row in airgraph.explain().graphs if row["state"] == "captured"]


@torch.no_grad()
def test_buffers_that_share_memory_are_used_in_the_order_of_the_program() -> None:
    model, twin, x = _Overlapping(), _Overlapping(), torch.ones(6)
    call = torch.compile(model, backend="airgraph", fullgraph=True, options={"stream_check": "error"})
    with pytest.warns(UserWarning, match="runs eagerly .* is written and shares memory with"):
        result = call(x)
    assert torch.equal(result, twin(x)) and torch.equal(model.read, twin.read)
    assert not [row for row in airgraph.explain().graphs if row["state"] == "captured"]
