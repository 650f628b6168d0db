"""Ranks of a graph with collectives: which of them capture a key, and what the others do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gloo_programs import run_on_two_ranks

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")


def test_ranks_run_a_key_alike(tmp_path: Path) -> None:
    run_on_two_ranks(
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
    run_on_two_ranks(
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
    run_on_two_ranks(
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
    run_on_two_ranks(
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
    run_on_two_ranks(
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
