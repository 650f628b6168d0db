"""Collectives within a graph, between two real processes."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch
from ranks import on_two_ranks, under_torchrun

import airgraph
from airgraph.program.collectives import groups_of

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")

_EXAMPLES = Path(__file__).parents[3] / "examples"
_SETUP = """
import warnings, torch, airgraph
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
from airgraph import scope
from airgraph.runtime.cpu import beside
beside._LEAST_GAIN_NS, beside._cores = float("-inf"), lambda: 2
warnings.simplefilter("ignore")
torch.set_grad_enabled(False)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.group.WORLD
def compiled(function, **options):
    return torch.compile(function, backend="airgraph", fullgraph=True, options=options)
def rows():
    return airgraph.explain().to_dict()["graphs"]
"""
_END = """
dist.barrier()
dist.destroy_process_group()
print("rank is done")
"""


def _run(folder: Path, program: str) -> None:
    script = folder / "program.py"
    script.write_text(_SETUP + textwrap.dedent(program) + _END)
    assert on_two_ranks(script).count("rank is done") == 2


def test_the_example_of_a_tensor_parallel_mlp() -> None:
    output = under_torchrun(_EXAMPLES / "tensor_parallel.py")
    assert "the same on 2 ranks as on one" in output
    assert output.count("captured") >= 2 and "eager_calls: 0" in output


def test_the_collective_of_the_example_has_a_stream_and_nothing_awaits_it_early(tmp_path: Path) -> None:
    """What is computed meanwhile stands on another stream, and neither begins after the other's end."""
    _run(
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
    _run(
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
    _run(
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
    _run(
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
    _run(
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


def test_ranks_run_a_key_alike(tmp_path: Path) -> None:
    _run(
        tmp_path,
        """
        from airgraph.capture.ranks import Ranks
        settle, exchanges = Ranks.settle, []
        Ranks.settle = lambda self, key, vote: exchanges.append(key) or settle(self, key, vote)
        # As where a library asks for it; gloo does not.
        import dataclasses
        from airgraph.runtime.registry import runtime_for
        runtime = type(runtime_for("cpu"))
        runtime.capabilities = dataclasses.replace(runtime.capabilities, ranks_run_alike=True)
        # The larger shape does not fit the budget of the second rank.
        def program(x):
            return fc.all_reduce((x @ x.T).exp() + 1, "sum", world) * 2
        call = compiled(program, memory_budget=100_000 if rank else None)
        for size in (4, 200, 4, 200, 4, 200):
            x = torch.randn(size, 3, generator=torch.Generator().manual_seed(size)) / 10
            torch.testing.assert_close(call(x), 2 * 2 * ((x @ x.T).exp() + 1))
        found = {row["key"]: (row["state"], row["reason"]) for row in rows()}
        state, reason = found.pop("(200)")
        assert state == "skipped" and {state for state, _ in found.values()} == {"captured"}, found
        assert ("memory_budget" in reason) if rank else ("another rank cannot capture it" in reason), reason
        # Once a key, on each rank, whatever comes of it: the first size is a constant, and then one that varies.
        assert len(exchanges) == len(set(exchanges)) == 3, exchanges
        # A reset, on whatever ranks, takes back nothing of it.
        airgraph.reset()
        for size in (200, 4, 200):
            x = torch.randn(size, 3, generator=torch.Generator().manual_seed(size)) / 10
            torch.testing.assert_close(call(x), 2 * 2 * ((x @ x.T).exp() + 1))
        found = {row["key"]: row["state"] for row in rows()}
        assert (found.pop("(200)"), *found.values()) == ("skipped", "captured"), rows()
        assert len(exchanges) == 3, exchanges
        """,
    )


def test_a_program_that_one_rank_cannot_capture(tmp_path: Path) -> None:
    _run(
        tmp_path,
        """
        call = compiled(lambda x: fc.all_reduce(x + 1, "sum", world) * 2, force_eager=rank == 1)
        for _ in range(3):
            assert torch.equal(call(torch.ones(3)), torch.full((3,), 8.))
        assert rows()[-1]["state"] == "skipped"
        assert ("another rank" in rows()[-1]["reason"]) is (rank == 0)
        """,
    )


def test_ranks_hear_of_one_another_which_keys_they_cannot_capture(tmp_path: Path) -> None:
    """And ask no more once all have spoken."""
    _run(
        tmp_path,
        """
        from airgraph.capture.votes import Votes
        heard, asked = Votes.is_refused, []
        Votes.is_refused = lambda self, key: asked.append(str(key)) or heard(self, key)
        # The larger shape does not fit the budget of the second rank.
        def program(x):
            return fc.all_reduce((x @ x.T).exp() + 1, "sum", world) * 2
        call = compiled(program, memory_budget=100_000 if rank else None)
        def run(sizes):
            for size in sizes:
                x = torch.randn(size, 3, generator=torch.Generator().manual_seed(size)) / 10
                torch.testing.assert_close(call(x), 2 * 2 * ((x @ x.T).exp() + 1))
            return {row["key"]: (row["state"], row["reason"]) for row in rows()}
        found = run((4, 200) * 4)
        state, reason = found.pop("(200)")
        assert state == "skipped" and {state for state, _ in found.values()} == {"captured"}, found
        assert ("memory_budget" in reason) if rank else ("another rank cannot capture it" in reason), reason
        asked.clear()
        run((4,) * 20)
        assert len(asked) < 10, asked
        # A reset, on whatever ranks, takes back nothing of it.
        airgraph.reset()
        found = run((200, 4, 200))
        assert (found.pop("(200)")[0], *(state for state, _ in found.values())) == ("skipped", "captured"), rows()
        """,
    )


def test_each_rank_has_keys_of_its_own(tmp_path: Path) -> None:
    """Such as batches of different sizes: a rank that captured waited for one that replayed, or took its numbers."""
    _run(
        tmp_path,
        """
        def program(x):
            return fc.all_reduce(x.sum(), "sum", world) + 1
        for dynamic in (True, None):
            torch._dynamo.reset()
            call = torch.compile(program, backend="airgraph", fullgraph=True, dynamic=dynamic)
            for sizes in ((4, 5), (5, 5), (4, 5), (6, 4), (6, 6)):
                assert call(torch.ones(sizes[rank], 2)) == 2 * sum(sizes) + 1
        assert airgraph.explain().to_dict()["counters"]["eager_calls"] == 0
        """,
    )


@pytest.mark.parametrize("obstacle", ["force_eager", "memory_budget"])
def test_ranks_that_cannot_capture_run_a_call_when_the_others_do(obstacle: str, tmp_path: Path) -> None:
    """On a device whose capture runs the call, as CUDA's: a collective of the program met one of the agreement."""
    _run(
        tmp_path,
        f"""
        import dataclasses
        from airgraph.runtime.registry import runtime_for
        runtime = runtime_for("cpu")
        record, runs = type(runtime).record, []
        def running_record(self, program, inputs, pool, options, call=None):
            graph = record(self, program, inputs, pool, options, call)
            if call is not None:
                runs.append(program.name)
                graph.first_outputs = list(program.gm(*call))
            return graph
        type(runtime).record = running_record
        as_cuda = dataclasses.replace(runtime.capabilities, runs_to_capture=True, ranks_run_alike=True)
        type(runtime).capabilities = as_cuda

        hindered = {{"force_eager": True}} if {obstacle!r} == "force_eager" else {{"memory_budget": 1000}}
        options = hindered if rank else {{}}
        call = compiled(lambda x: fc.all_reduce((x + 1).exp(), "sum", world) * 2, **options)
        x = torch.ones(64, 64)
        for _ in range(3):
            torch.testing.assert_close(call(x), 4 * (x + 1).exp())
        assert rows()[-1]["state"] == "skipped" and len(runs) == (0 if rank else 1), rows()
        # All of them can: a warm-up runs nothing.
        torch._dynamo.reset()
        runs.clear()
        call = compiled(lambda x: fc.all_reduce(x * 3, "sum", world) + 1)
        airgraph.warmup(call, [(x,)], progress=False)
        assert not runs
        for _ in range(3):
            torch.testing.assert_close(call(x), x * 6 + 1)
        assert rows()[-1]["state"] == "captured"
        """,
    )


def test_what_has_no_form_in_place_runs_eagerly(tmp_path: Path) -> None:
    _run(
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
        _run(tmp_path, program)


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
