"""Collectives in graphs between two real processes, each with a device, by NCCL or HCCL; gloo is in tests/runtime/cpu.

Where a device is simulated, so is its library of collectives, below PyTorch's and torch_npu's own process groups. Work
is done in the worst order that streams allow.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch
from ranks import on_two_ranks

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")

_SETUP = """
import os, sys, warnings
import torch, airgraph
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
from airgraph import scope
warnings.simplefilter("ignore")
torch.set_grad_enabled(False)
device = sys.argv[1]
rank = int(os.environ["RANK"])
module = getattr(torch, device)
module.set_device(rank % module.device_count())
dist.init_process_group({"cuda": "nccl", "npu": "hccl"}[device])
world = dist.group.WORLD
def compiled(function, **options):
    return torch.compile(function, backend="airgraph", fullgraph=True, options=options)
def rows():
    return airgraph.explain().to_dict()["graphs"]
def numbers(*shape):
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32, device=device).view(shape)
"""
_END = """
dist.barrier()
dist.destroy_process_group()
print("rank is done")
"""
_WORST = {"SIMCUDA_SCHEDULE": "adversarial", "SIMCANN_SCHEDULE": "adversarial"}


@pytest.fixture(autouse=True)
def _on_devices_beside_the_cpu(device: str) -> None:
    if device == "cpu":
        pytest.skip("tests/runtime/cpu has them for the engine")


def _run(folder: Path, device: str, program: str) -> None:
    script = folder / "program.py"
    script.write_text(_SETUP + textwrap.dedent(program) + _END)
    assert on_two_ranks(script, device, device=device, **_WORST).count("rank is done") == 2


def test_collectives_are_replayed(device: str, tmp_path: Path) -> None:
    """On the caller's stream, and on one of their own, while the caller goes on. Fake tensors settle nothing."""
    _run(
        tmp_path,
        device,
        """
        def program(x):
            h = x * 2 + rank
            summed = fc.all_reduce(h, "sum", world)
            largest = fc.all_reduce(h.to(torch.bfloat16), "max", world)
            gathered = fc.all_gather_tensor(h.t().contiguous(), 0, world)
            with scope.stream("comm"):
                scattered = fc.reduce_scatter_tensor(h, "sum", 0, world)
                from_first = fc.broadcast(h, 0, world)
            return summed + h, largest + 1, gathered.sum(0), scattered * 2, from_first + 1, h @ h.T
        call = compiled(program)
        with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
            call(mode.from_tensor(numbers(4, 6)))
        for number in range(6):
            x = numbers(4, 6) + number
            for ours, theirs in zip(call(x), program(x), strict=True):
                assert torch.equal(ours, theirs), (number, ours, theirs)
        (row,) = rows()
        assert (row["state"], row["streams"], row["replays"]) == ("captured", 2, 6), row
        """,
    )


def test_parts_of_all_are_exchanged(device: str, tmp_path: Path) -> None:
    """Of equal and of other sizes; with NCCL and HCCL these are messages of ranks, together."""
    _run(
        tmp_path,
        device,
        """
        def program(x):
            alike = fc.all_to_all_single(x * 2, None, None, world)
            others = fc.all_to_all_single(x + 1, [1, 3] if rank else [3, 1], [1, 3] if rank else [3, 1], world)
            return alike + 1, others * 2
        call = compiled(program)
        for number in range(4):
            x = numbers(4, 3) + 100 * rank + number
            for ours, theirs in zip(call(x), program(x), strict=True):
                assert torch.equal(ours, theirs), (number, ours, theirs)
        (row,) = rows()
        assert row["state"] == "captured", row
        """,
    )


def test_what_a_collective_reads_is_written_after_the_wait(device: str, tmp_path: Path) -> None:
    """The other rank comes late: what is written early would be sent to it."""
    _run(
        tmp_path,
        device,
        """
        def gather(x):
            gathered = fc.all_gather_tensor(x, 0, world)
            # Eager's own would be read while it is written: its wait is where the result is taken.
            return gathered if torch.compiler.is_compiling() else fc.wait_tensor(gathered)
        def mutated(x):
            gathered = gather(x)
            x.add_(1)
            return gathered.amax()
        def an_intermediate(x):
            h = x * 2
            gathered = gather(h)
            return h.add(1).mul(2), gathered.amax()
        def on_a_stream(x):
            started = airgraph.Event("started")
            with scope.stream("comm"):
                gathered = gather(x)
                started.record()
            started.wait()
            x.add_(1)
            return gathered.amax()
        for function in (mutated, an_intermediate, on_a_stream):
            torch._dynamo.reset()
            call = compiled(function, stream_check="error")
            for number in range(1, 5):
                ours, theirs = [], []
                for found, form in ((theirs, function), (ours, call)):
                    x = torch.full((1 << 18,), float(number), device=device)
                    dist.barrier()
                    if rank:
                        (torch.ones(600, 600, device=device) @ torch.ones(600, 600, device=device)).sum().item()
                    found.append((form(x), x))
                flat = [torch.utils._pytree.tree_leaves(each) for each in (ours, theirs)]
                for got, expected in zip(*flat, strict=True):
                    assert torch.equal(got, expected), (function.__name__, number, got, expected)
        # A new argument is one that has moved; nothing of it ran eagerly.
        assert {row["state"] for row in rows()} <= {"captured", "dropped"}, rows()
        assert airgraph.explain().to_dict()["counters"]["eager_calls"] == 0
        """,
    )


def test_collectives_of_several_streams_run_as_they_were_called(device: str, tmp_path: Path) -> None:
    """A communicator orders what it is called for, whichever stream it is on: of those below nothing else does. The
    other rank waits for each."""
    _run(
        tmp_path,
        device,
        """
        x = numbers(4, 4)
        for number in range(1, 6):
            begun = [fc.all_reduce(x * number, "max", world) if rank else (x * number).clone()]
            if not rank:
                dist.all_reduce(begun[0], dist.ReduceOp.MAX)
            for size in (1, 2, 3):
                with module.stream(module.Stream()):
                    begun.append(torch.full((size,), rank + number, device=device))
                    dist.all_reduce(begun[-1], dist.ReduceOp.MIN)
                if not rank:
                    module.synchronize()
            for each in begun:
                each + 0
            module.synchronize()
            assert [each.sum().item() for each in begun] == [120 * number, number, 2 * number, 3 * number]

        # Within a capture, too.
        parts = [torch.full((size,), float(rank + size), device=device) for size in (1, 2, 3)]
        streams = [module.Stream() for _ in parts]
        def all_reduced():
            main = module.current_stream()
            for part, stream in zip(parts, streams):
                stream.wait_stream(main)
                with module.stream(stream):
                    dist.all_reduce(part, dist.ReduceOp.MIN)
                if not rank:
                    module.synchronize()
            for stream in streams:
                main.wait_stream(stream)
        if rank and device == "cuda":
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                all_reduced()
            graph.replay()
        else:
            all_reduced()
        module.synchronize()
        assert [part.tolist() for part in parts] == [[1.0], [2.0, 2.0], [3.0, 3.0, 3.0]], parts
        if rank and device == "cuda":
            graph.reset()
        """,
    )


@pytest.mark.parametrize("obstacle", ["force_eager", "memory_budget"])
def test_ranks_run_a_key_alike(device: str, obstacle: str, tmp_path: Path) -> None:
    _run(
        tmp_path,
        device,
        f"""
        hindered = {{"force_eager": True}} if {obstacle!r} == "force_eager" else {{"memory_budget": 1000}}
        call = compiled(lambda x: fc.all_reduce((x + 1).exp(), "sum", world) * 2, **(hindered if rank else {{}}))
        x = torch.ones(64, 64, device=device)
        for number in range(4):
            torch.testing.assert_close(call(x * number), 4 * (x * number + 1).exp())
        row = rows()[-1]
        assert row["state"] == "skipped", rows()
        assert ("another rank" in row["reason"]) is (rank == 0), row
        """,
    )


def test_a_rank_whose_capture_fails_runs_eagerly_beside_the_others(device: str, tmp_path: Path) -> None:
    """Each call has the same collectives, in the same order, on both."""
    _run(
        tmp_path,
        device,
        """
        simulator, begin = {
            "cuda": ("simcuda", "cudaStreamBeginCapture"), "npu": ("simcann", "aclmdlRICaptureBegin")
        }[device]
        call = compiled(lambda x: fc.all_reduce((x + 1).exp(), "sum", world) * 2)
        x = torch.ones(64, 64, device=device)
        dist.all_reduce(x.clone())
        if rank:
            with __import__(simulator).fail_once(begin):
                first = call(x)
        else:
            first = call(x)
        torch.testing.assert_close(first, 4 * (x + 1).exp())
        for number in range(4):
            torch.testing.assert_close(call(x * number), 4 * (x * number + 1).exp())
        """,
    )


def test_a_call_that_raises_on_one_rank(device: str, tmp_path: Path) -> None:
    """Once past its collectives it meets the other's agreement, and both go on alike. Before that it raises at once:
    the other rank is not in the agreement yet."""
    _run(
        tmp_path,
        device,
        """
        raises = False

        @torch.library.custom_op("airgraph_tests::may_raise", mutates_args=())
        def may_raise(x: torch.Tensor) -> torch.Tensor:
            if raises:
                raise raises
            return x.clone()

        may_raise.register_fake(torch.empty_like)

        def rest(x):
            return fc.all_reduce(x + 1, "max", world)

        def late(x):
            return may_raise(fc.all_reduce(x * 2, "sum", world))

        def early(x):
            return rest(late(x))

        def state_on_both():
            states = [None, None]
            dist.all_gather_object(states, rows()[-1]["state"])
            assert states[0] == states[1], states
            return states[0]

        def raised_by_a_call(error):
            global raises
            raises = error if rank else False
            try:
                call(x)
            except BaseException as raised:
                assert raised is error, raised
            else:
                assert not rank
            raises = False

        x = numbers(4, 4) + 0
        call = torch.compile(late, backend="airgraph", fullgraph=True, dynamic=True)
        for error in (ValueError("no"), torch.OutOfMemoryError("no")):
            raised_by_a_call(error)
        for number in range(3):
            assert torch.equal(call(x + number), 4 * (x + number))
        # Where no operator runs to be captured, the one that raises cannot be.
        assert state_on_both() == ("captured" if device == "cuda" else "skipped"), rows()
        assert {row["name"] for row in rows()} == {"late #1"}

        x = numbers(5, 4) + 0
        for _ in range(9):
            raised_by_a_call(ValueError("again"))
        assert state_on_both() == "skipped"
        assert torch.equal(call(x), 4 * x)

        call = torch.compile(early, backend="airgraph", fullgraph=True, dynamic=True)
        for rows_of_x, error in enumerate((ValueError("no"), torch.OutOfMemoryError("no"), KeyboardInterrupt()), 3):
            x = numbers(rows_of_x, 4) + 0
            raised_by_a_call(error)
            # What the other rank is in by now. Of an interrupt it is not told.
            interrupts_a_capture = device == "npu" and isinstance(error, KeyboardInterrupt)
            if rank and device == "cuda":
                rest(x)
            if rank and (device == "cuda" or interrupts_a_capture):
                dist.all_reduce(torch.zeros(1, dtype=torch.int32, device=device), dist.ReduceOp.MIN)
            if rank and interrupts_a_capture:
                late(x)
            if rank and device == "npu":
                rest(x)
            dist.barrier()
        """,
    )


def test_the_example_of_a_tensor_parallel_mlp(device: str, tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "tensor_parallel.py"
    said = on_two_ranks(example, device, device=device, **_WORST)
    assert "the same on 2 ranks as on one" in said
    assert said.count("captured") >= 2 and "eager_calls: 0" in said


def test_cached_graphs_with_collectives(device: str, tmp_path: Path) -> None:
    program = """
        import pathlib
        folder = pathlib.Path(__file__).parent
        def program(x):
            with scope.stream("comm"):
                total = fc.all_reduce(x + 1, "sum", world)
            return total * 2, x @ x
        call = airgraph.inference.cache_compile(program, cache_dir=folder / "cache", strict=True)
        for number in range(4):
            x = numbers(4, 4) + number
            for ours, theirs in zip(call(x), program(x), strict=True):
                torch.testing.assert_close(ours, theirs)
        assert call.counts().traces == int((folder / "traces").read_text()), call.counts()
        assert rows()[-1]["state"] == "captured", rows()
        """
    for traces in ("1", "0"):
        (tmp_path / "traces").write_text(traces)
        _run(tmp_path, device, program)


def test_a_product_is_computed_while_the_other_rank_has_not_come(device: str, tmp_path: Path) -> None:
    """The other rank begins once this one's product is there: a collective that held it back would wait for ever."""
    _run(
        tmp_path,
        device,
        """
        import ctypes
        from datetime import timedelta
        store, number = dist.distributed_c10d._get_default_store(), 0
        library, launch = {
            "cuda": ("libcudart.so.13", "cudaLaunchHostFunc"), "npu": ("libascendcl.so", "aclrtLaunchHostFunc")
        }[device]
        launch = getattr(ctypes.CDLL(library), launch)

        @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        def host_function(data):
            if rank == 0:
                store.set(f"computed {number}", "")

        @torch.library.custom_op("airgraph_tests::tell", mutates_args=())
        def tell(x: torch.Tensor) -> torch.Tensor:
            stream = module.current_stream()
            handle = stream.cuda_stream if device == "cuda" else stream.npu_stream
            assert launch(ctypes.c_void_p(handle), host_function, None) == 0
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

        x, weight = torch.ones(64, 64, device=device), torch.eye(64, device=device) * 3
        call = compiled(program, stream_check="error")
        for replay in range(4):
            number = replay
            # The first calls capture, in step.
            if rank == 1 and replay > 1:
                store.wait([f"computed {replay}"], timedelta(seconds=20))
            total, product = call(x * (replay + 1), weight)
            assert total[0, 0].item() == 4 * (replay + 1) + 1 and product[0, 0].item() == 3 * (replay + 1)
        (row,) = rows()
        assert (row["state"], row["streams"]) == ("captured", 2), row
        """,
    )


def test_what_a_distributed_tensor_communicates_by(device: str, tmp_path: Path) -> None:
    """Some operators of DTensor's own are collectives, too: their graphs end before the group does."""
    _run(
        tmp_path,
        device,
        """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor
        mesh = init_device_mesh(device, (2,))
        def program(x):
            return (x * 2).redistribute(placements=[Shard(1)]).to_local() + 1
        call = compiled(program)
        for number in range(3):
            whole = numbers(4, 6) + number
            assert torch.equal(call(distribute_tensor(whole, mesh, [Shard(0)])), whole.chunk(2, 1)[rank] * 2 + 1)
        assert rows()[-1]["state"] == "captured", rows()
        """,
    )


def test_graphs_end_before_their_group_does(device: str, tmp_path: Path) -> None:
    """A communicator of NCCL waits at its end for the graphs that have captured it: for ever, while one is kept.

    What another thread calls meanwhile runs eagerly.
    """
    _run(
        tmp_path,
        device,
        """
        shutdown = dist.ProcessGroup.shutdown
        def shutdown_beside_a_call(group):
            if group.group_name == dist.group.WORLD.group_name:
                assert torch.equal(call(x), 4 * x + 1)
            shutdown(group)
        dist.ProcessGroup.shutdown = shutdown_beside_a_call

        def start():
            global world
            world = dist.group.WORLD
            others = dist.new_group([0, 1])
            return others, compiled(lambda x: fc.all_reduce(x * 2, "sum", world) + 1), compiled(
                lambda x: fc.all_reduce(x * 3, "sum", others) + 1
            )

        others, call, call_others = start()
        x = numbers(4, 4)
        for _ in range(3):
            kept, kept_others = call(x), call_others(x)
        dist.destroy_process_group(others)
        assert [row["state"] for row in rows()] == ["captured", "dropped"], rows()
        assert torch.equal(call(x + 1), 4 * (x + 1) + 1)
        try:
            call_others(x)
        except RuntimeError as error:
            assert "resolve the process group" in str(error), error
        dist.destroy_process_group()
        assert {row["state"] for row in rows()} == {"dropped"}, rows()
        # What was handed out is there still.
        assert torch.equal(kept, 4 * x + 1) and torch.equal(kept_others, 6 * x + 1)

        store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
        backend = {"cuda": "nccl", "npu": "hccl"}[device]
        dist.init_process_group(backend, store=dist.PrefixStore("again", store), rank=rank, world_size=2)
        for number in range(3):
            assert torch.equal(call(x + number), 4 * (x + number) + 1)
        assert rows()[-1]["state"] == "captured", rows()
        """,
    )
