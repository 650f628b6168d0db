"""Collectives within a graph, between two real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gloo_programs import run_on_two_ranks
from ranks import under_torchrun

import airgraph
from airgraph.program.collectives import groups_of

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")

_EXAMPLES = Path(__file__).parents[3] / "examples"


def test_the_example_of_a_tensor_parallel_mlp() -> None:
    output = under_torchrun(_EXAMPLES / "tensor_parallel.py")
    assert "the same on 2 ranks as on one" in output
    assert output.count("captured") >= 2 and "eager_calls: 0" in output


def test_the_collective_of_the_example_has_a_stream_and_nothing_awaits_it_early(tmp_path: Path) -> None:
    """What is computed meanwhile stands on another stream, and neither begins after the other's end."""
    run_on_two_ranks(
        tmp_path,
        f"""
        import json, sys
        sys.path.insert(0, {str(_EXAMPLES)!r})
        from tensor_parallel import Both, Mlp
        model = Both(*(Mlp(torch.randn(64, 32), torch.randn(32, 64)) for _ in range(2)))
        call = compiled(model)
        for _ in range(3):
            call(torch.randn(8, 32))
        assert rows()[0]["streams"] == 2
        airgraph.explain(profile=True).save(f"{tmp_path!s}/trace{{rank}}.json")
        events = json.load(open(f"{tmp_path!s}/trace{{rank}}.json"))["traceEvents"]
        tracks = {{each["tid"]: each["args"]["name"] for each in events if each["name"] == "thread_name"}}
        spans = [(each["name"], tracks[each["tid"]]) for each in events if each["ph"] == "X"]
        names = [name for name, _ in spans]
        first = next(i for i, name in enumerate(names) if "all_reduce" in name)
        assert spans[first][1] == "stream comm", spans
        # The second of the two MLPs, on the main stream, which waits for the first's sum only after it.
        others = [place for place, (name, track) in enumerate(spans) if "mm" in name and track != "stream comm"]
        assert len(others) == 4, spans
        arrows = [each for each in events if each["ph"] in "sf"]
        joins = [each["ts"] for each in arrows if each["ph"] == "f" and tracks[each["tid"]] != "stream comm"]
        products = [each["ts"] for each in events if each["ph"] == "X" and "mm" in each["name"]]
        assert joins and min(joins) > max(products), (joins, products)
        """,
    )


def test_a_product_is_computed_while_the_other_rank_has_not_come(tmp_path: Path) -> None:
    """A collective that blocked where it starts would block for ever: the other rank begins after the product's end."""
    run_on_two_ranks(
        tmp_path,
        """
        from datetime import timedelta
        store, number = dist.distributed_c10d._get_default_store(), 0

        @torch.library.custom_op("airgraph_tests::tell", mutates_args=())
        def tell(x: torch.Tensor) -> torch.Tensor:
            if rank == 0:
                store.set(f"computed {number}", "")
            return x.clone()

        tell.register_fake(torch.empty_like)
        started = airgraph.Event("started")

        def program(x, weight):
            with scope.stream("comm"):
                total = fc.all_reduce(x * 2, "sum", world)
                started.record()
            product = tell(x @ weight)
            started.wait()
            return total + 1, product

        x, weight = torch.ones(64, 64), torch.eye(64) * 3
        for threads in (1, 2):
            beside._cores = lambda: threads
            torch._dynamo.reset()
            airgraph.reset()
            call = compiled(program, stream_check="error")
            for replay in range(3):
                number += 1
                # The first calls capture, in step.
                if rank == 1 and replay > 0:
                    store.wait([f"computed {number}"], timedelta(seconds=20))
                total, product = call(x * number, weight)
                assert total[0, 0].item() == 4 * number + 1 and product[0, 0].item() == 3 * number
            (row,) = rows()
            assert (row["state"], row["streams"], row["threads"], row["replays"]) == ("captured", 2, threads, 3), row
        """,
    )


def test_collectives_are_replayed(tmp_path: Path) -> None:
    run_on_two_ranks(
        tmp_path,
        """
        def program(x):
            h = x * 2 + rank
            summed = fc.all_reduce(h, "sum", world)
            gathered = fc.all_gather_tensor(h.t(), 0, world)
            scattered = fc.reduce_scatter_tensor(h, "sum", 0, world)
            from_first = fc.broadcast(h, 0, world)
            return summed + h, gathered.sum(0), scattered * 2, from_first + 1
        call = compiled(program)
        for number in range(50):
            x = torch.full((4, 6), float(number)) + torch.arange(24.).view(4, 6)
            for ours, theirs in zip(call(x), program(x), strict=True):
                assert torch.equal(ours, theirs), number
        (row,) = rows()
        assert (row["state"], row["replays"]) == ("captured", 50)
        """,
    )


def test_what_a_collective_reads_is_written_after_the_wait(tmp_path: Path) -> None:
    """Also where nothing takes its result until later: the other rank may not even have begun."""
    run_on_two_ranks(
        tmp_path,
        """
        def at_once(made):
            # Eager's own would be read while it is written: its wait is where the result is taken.
            return made if torch.compiler.is_compiling() else fc.wait_tensor(made)
        def gather(x):
            return at_once(fc.all_gather_tensor(x, 0, world))
        def mutated(x):
            gathered = gather(x)
            x.add_(1)
            return gathered.amax()
        def mutated_and_handed_out(x):
            gathered = gather(x)
            x.add_(1)
            return gathered
        def mutated_as_a_view(x):
            gathered = gather(x.view(2, -1))
            x[1:].mul_(3)
            return gathered.amax()
        def an_intermediate(x):
            h = x * 2
            gathered = gather(h)
            return h.add(1).mul(2), gathered.amax()
        def scattered(x):
            h = x * 2
            part = at_once(fc.reduce_scatter_tensor(h, "sum", 0, world))
            return h.add(1), part.amax()
        def as_torch_distributed_has_it(out, x):
            dist.all_gather_into_tensor(out, x)
            x.add_(1)
            return out.amax()
        def on_a_stream(x):
            started = airgraph.Event("started")
            with scope.stream("comm"):
                gathered = gather(x)
                started.record()
            started.wait()
            x.add_(1)
            return gathered.amax()
        size = 1 << 20
        for function in (mutated, mutated_and_handed_out, mutated_as_a_view, an_intermediate, scattered,
                         as_torch_distributed_has_it, on_a_stream):
            torch._dynamo.reset()
            call = compiled(function, stream_check="error")
            for number in range(1, 6):
                ours, theirs = [], []
                for found, form in ((theirs, function), (ours, call)):
                    x = torch.full((size,), float(number))
                    made = [torch.zeros(2 * size)] * (function is as_torch_distributed_has_it)
                    dist.barrier()
                    if rank:
                        # The other rank has started by then.
                        torch.ones(1000, 1000) @ torch.ones(1000, 1000)
                    found.append((form(*made, x), x, *made))
                flat = [torch.utils._pytree.tree_leaves(each) for each in (ours, theirs)]
                for got, expected in zip(*flat, strict=True):
                    assert torch.equal(got, expected), (function.__name__, number, got, expected)
        assert {row["state"] for row in rows()} == {"captured"}, rows()
        """,
    )


def test_they_are_in_one_order_on_all_streams(tmp_path: Path) -> None:
    # Large and small ones by turns: an order of each rank's own would add up what does not belong together.
    run_on_two_ranks(
        tmp_path,
        """
        def program(x):
            found = []
            for number in range(6):
                with scope.stream(("a", "b", "default")[number % 3]):
                    h = x[: 1 + 999 * (number % 2)] + number
                    found.append(fc.all_reduce(h, "sum", world))
            return tuple(found)
        call = compiled(program)
        x = torch.arange(1000.)
        for _ in range(100):
            for number, out in enumerate(call(x)):
                assert torch.equal(out, 2 * (x[: 1 + 999 * (number % 2)] + number)), number
        assert rows()[0]["threads"] == 2
        """,
    )


def test_what_has_no_form_in_place_runs_eagerly(tmp_path: Path) -> None:
    run_on_two_ranks(
        tmp_path,
        """
        def program(x):
            return fc.all_to_all_single(x * 2, [1, 1], [1, 1], world) + 1
        call = compiled(program)
        x = torch.arange(2.) + rank
        for _ in range(2):
            assert torch.equal(call(x), program(x))
        (row,) = rows()
        assert row["state"] == "skipped" and "this collective has no form" in row["reason"]
        """,
    )


def test_they_are_cached_by_the_name_and_ranks_of_their_group(tmp_path: Path) -> None:
    program = """
        import pathlib
        folder = pathlib.Path(__file__).parent
        more, traces = map(int, (folder / "start").read_text().split())
        for _ in range(more):
            dist.new_group([0])
        both = dist.new_group([0, 1])
        def program(x):
            return fc.all_reduce(x + 1, "sum", both) * 2, fc.all_reduce(x, "sum", [0, 1]) + 1
        call = airgraph.inference.cache_compile(program, cache_dir=folder / "cache", strict=True)
        for _ in range(2):
            first, second = call(torch.ones(3))
            assert torch.equal(first, torch.full((3,), 8.)) and torch.equal(second, torch.full((3,), 3.))
        assert call.counts().traces == traces, call.counts()
        """
    # At the third start a group of this name has other ranks.
    for start in ("0 1", "0 0", "1 1"):
        (tmp_path / "start").write_text(start)
        run_on_two_ranks(tmp_path, program)


@torch.no_grad()
def test_groups_of_a_cached_graph_are_a_condition_of_each_call(tmp_path: Path) -> None:
    from torch import distributed
    from torch.distributed import _functional_collectives
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def gathered(x: torch.Tensor) -> torch.Tensor:
        return _functional_collectives.all_gather_tensor(x, 0, "0") * 2

    call = airgraph.inference.cache_compile(gathered, cache_dir=tmp_path, strict=True)
    for count in (2, 4, 2):
        distributed.init_process_group("fake", rank=0, world_size=count, store=FakeStore())
        try:
            for _ in range(2):
                assert call(torch.ones(2, 3)).shape == (2 * count, 3)
        finally:
            distributed.destroy_process_group()
    assert call.counts().traces == 2


@torch.no_grad()
def test_what_stands_between_runs_beside_a_collective() -> None:
    from torch import distributed
    from torch.distributed import _functional_collectives
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        # The clone is used first, and goes.
        reduced = _functional_collectives.all_reduce(x, "sum", "0").reshape(-1).clone()
        return (y @ y @ y) + reduced.view(4, 4)

    names: list[str] = []

    def look(gm: torch.fx.GraphModule, example_inputs: object, options: object) -> None:
        names.extend(str(node.target).split(".")[1] for node in gm.graph.nodes if node.op == "call_function")

    distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        options = {"post_grad_custom_post_pass": look}
        torch.compile(program, backend="airgraph", fullgraph=True, options=options)(torch.ones(4, 4), torch.ones(4, 4))
    finally:
        distributed.destroy_process_group()
    assert names.index("wait_tensor") > max(place for place, name in enumerate(names) if name == "mm")


def test_groups_come_in_the_order_in_which_they_were_made() -> None:
    """Those along one dimension of a mesh are made before those along the next: what one rank says reaches all."""
    graph = torch.fx.Graph()
    value = graph.placeholder("x")
    for name in ("10", "9", "2"):
        value = graph.call_function(torch.ops._c10d_functional.all_reduce.default, (value, "sum", name))
    graph.output((value,))
    assert groups_of(graph) == ["2", "9", "10"]
