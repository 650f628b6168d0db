"""What the sanitizers watch: capture, replay, errors, held outputs and threads, without torch.compile.

python sanitized_program.py [kernels] [without-openmp]

kernels: only kernels of our own, as for each instruction set that they have. without-openmp: ThreadSanitizer does not
see how OpenMP, which is not instrumented, hands a loop to its threads, and takes the first look at it for a race.
"""

import gc
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

import airgraph
from airgraph.memory.pool import ArenaPool
from airgraph.options import Options
from airgraph.program.inputs import InputPlan, InputRole
from airgraph.program.program import CaptureProgram
from airgraph.runtime.cpu import beside
from airgraph.runtime.cpu.runtime import CpuRuntime
from airgraph.runtime.engine.loading import engine
from airgraph.runtime.recording.inputs import decide_inputs


def replay_by_hand() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 4))
    x, cache, position = torch.randn(3, 16), torch.zeros(8, 16), torch.tensor([2, 5, 7])
    with torch.inference_mode():
        for _ in range(5):
            g = airgraph.cpu.CPUGraph()
            with airgraph.cpu.graph(g):
                cache.index_copy_(0, position, x)
                out = torch.cat([model(x), model(cache)[:2], (x.mean(-1, keepdim=True) + 1e-6).expand(3, 4)])
            for _ in range(20):
                g.replay()
            expected = torch.cat([model(x), model(cache)[:2], (x.mean(-1, keepdim=True) + 1e-6).expand(3, 4)])
            torch.testing.assert_close(out, expected)
            del out
            g.reset()
            gc.collect()


def failing_kernel() -> None:
    weight, index = torch.randn(4, 2), torch.tensor([1, 2])
    g = airgraph.cpu.CPUGraph()
    with torch.inference_mode(), airgraph.cpu.graph(g):
        nn.functional.embedding(index, weight)
    for bad in (9, 1, 77, 2):
        index.fill_(bad)
        try:
            g.replay()
        except airgraph.errors.ReplayError:
            assert bad > 3


def streams_beside_one_another() -> None:
    """Workers that come and go, share several schedules, fail, and are left in mid work."""
    beside._LEAST_GAIN_NS, beside._cores = float("-inf"), lambda: 3

    def captured(x: torch.Tensor, index: torch.Tensor) -> tuple[airgraph.cpu.CPUGraph, torch.Tensor]:
        g, forked, done = airgraph.cpu.CPUGraph(), airgraph.Event("forked"), airgraph.Event("done")
        weight = torch.eye(4)
        with torch.inference_mode(), airgraph.cpu.graph(g, capture_error_mode="thread_local"):
            first = x + 1
            forked.record()
            with airgraph.scope.stream("a"):
                forked.wait()
                left = first.sin() @ weight
                done.record()
            with airgraph.scope.stream("b"):
                forked.wait()
                right = nn.functional.embedding(index, weight).sum() + x.exp()
            main = first * 2
            done.wait()
            airgraph.ops.wait([right])
            out = main + left + right
        return g, out

    def work(seed: int) -> None:
        for _ in range(4):
            x, index = torch.full((4, 4), float(seed)), torch.tensor([1, 2])
            g, out = captured(x, index)
            for number in range(100):
                if number % 25 == 24:
                    index.fill_(9)
                    try:
                        g.replay()
                    except airgraph.errors.ReplayError:
                        index.fill_(1)
                g.replay()
                assert torch.allclose(out, 2 * (x + 1) + (x + 1).sin() + 2 + x.exp())
            # What is left goes with the workers that look at it.
            del g

    work(0)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(1, 4)))


def kernels_of_our_own() -> None:
    """Loops whose parts threads share: several graphs at once, of odd sizes, at the ends of their memory."""
    torch.set_num_threads(3)
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    def captured(rows: int, n: int, k: int, dtype: torch.dtype) -> tuple[airgraph.cpu.CPUGraph, list[torch.Tensor]]:
        x, weight, bias = random(rows, k, dtype=dtype), random(n, k, dtype=dtype), random(n, dtype=dtype)
        stored = torch.randint(-128, 128, (n, k), dtype=torch.int8, generator=generator)
        batch, many = random(9, rows, k, dtype=dtype), random(9, 5, k, dtype=dtype).transpose(1, 2)
        query, key, value = (random(2, heads, length, k) for heads, length in ((6, rows), (2, n), (2, n)))
        g = airgraph.cpu.CPUGraph()
        with torch.no_grad(), airgraph.cpu.graph(g, capture_error_mode="thread_local"):
            outs = [
                x @ weight.t(),
                torch.addmm(bias, x, weight.t()),
                torch.bmm(batch, many),
                torch.ops.airgraph.mixed_mm(x, stored.t(), bias.float()),
                torch.ops.airgraph.decode_attention(query, key, value, torch.zeros(rows, n), 0.1),
            ]
            scaled = torch.nn.functional.silu(outs[0]) * bias + outs[1] * 0.5
            norm = "float32 0; square 2; mean 3; add 4 #1e-06; rsqrt 5; mul 2 6; cat 7 2"
            rows = torch.ops.airgraph.row_program(scaled, [bias], norm)
            long = torch.ops.airgraph.row_program(torch.randn(300, 5000), [torch.randn(5000)], "silu 0; mul 2 1")
            taken = torch.nn.functional.embedding(torch.tensor([[n - 1, 0]]), weight)
            outs += [rows, long, taken, torch.nn.functional.gelu(rows[:, :n].contiguous())]
            outs += [scaled, scaled.to(torch.float16), scaled.mean(-1), (scaled * scaled[:, :1]).argmax(-1)]
        return g, outs

    graphs = [
        captured(rows, n, k, dtype)
        for rows, n, k in ((1, 700, 333), (3, 97, 1001), (8, 65, 17))
        for dtype in (torch.float32, torch.bfloat16, torch.float16)
    ]

    def work(seed: int) -> None:
        for turn in range(30):
            g, outs = graphs[(seed + turn) % len(graphs)]
            g.replay()
            assert all(out.isfinite().all() for out in outs)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.set_num_threads(1)


def appended(tape: Any, name: str, args: tuple[Any, ...], outs: list[torch.Tensor], packed: Any = None) -> str:
    """One more call of a tape; which tier serves it."""
    native = engine()
    given = {"args": args, "kwargs": {}, "outs": outs, "fresh": [True] * len(outs), "needed": [True] * len(outs)}
    call = native.RecordedCall(
        name=name, overload="", **given, out_overload=None, redispatch=False, exact=False, packed=packed
    )
    return str(tape.append(call))


def rows_and_attention() -> None:
    """In three types, of sizes that are no vector's, with operands that end where their memory does."""
    torch.set_num_threads(3)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for count in (1, 17, 333, 1000):
            tape, x = engine().Tape(), torch.randn(3, count).to(dtype)
            weight, batch, many = x[0].clone(), torch.randn(4, 2, count).to(dtype), torch.randn(4, 9, count).to(dtype)
            query, key, mask = batch[None], many[None, :2].contiguous(), torch.zeros(2, 9, dtype=dtype)
            normed, soft, seen = (torch.empty_like(each) for each in (x, x, query))
            sums = [torch.empty(3, 1, dtype=dtype) for _ in range(2)]
            taken, added = torch.empty(2, count, dtype=dtype), torch.empty(4, 2, 9, dtype=dtype)
            bias = torch.randn(9).to(dtype)
            calls: list[tuple[str, tuple[Any, ...], list[torch.Tensor]]] = [
                ("aten::native_layer_norm", (x, [count], weight, weight, 1e-5), [normed, *sums]),
                ("aten::_softmax", (x, -1, False), [soft]),
                ("aten::index_select", (x, 0, torch.tensor([2, 0])), [taken]),
                ("aten::baddbmm", (bias, batch, many.mT), [added]),
                ("airgraph::decode_attention", (query, key, key, mask, 0.1), [seen]),
            ]
            for each in calls:
                assert appended(tape, *each) == "own", (each[0], dtype, count)
            for _ in range(3):
                tape.replay()
            near = {"rtol": 0.02, "atol": 0.02}
            torch.testing.assert_close(normed, nn.functional.layer_norm(x, [count], weight, weight), **near)
            torch.testing.assert_close(soft, x.softmax(-1), **near)
            torch.testing.assert_close(added, torch.baddbmm(bias, batch, many.mT), rtol=0.05, atol=0.5)
            assert torch.equal(taken, x[[2, 0]]) and seen.isfinite().all()
    torch.set_num_threads(1)


def loops_that_threads_of_openmp_share() -> None:
    """Beside calls that ATen divides; on as many threads as there are at each replay, by two threads' tapes."""
    torch.set_num_threads(2)

    def work(seed: int) -> None:
        torch.set_num_threads(2)
        tape, x, many = engine().Tape(), torch.randn(8, 576), torch.full((200, 400), float(seed))
        weight, out, soft = torch.randn(1536, 576), torch.empty(8, 1536), torch.empty(200, 400)
        assert appended(tape, "aten::mm", (x, weight.t()), [out]) == "own"
        appended(tape, "aten::_softmax", (many, -1, False), [soft])
        assert tape.is_divided_by_aten
        for _ in range(40):
            out.zero_()
            tape.replay()
            torch.testing.assert_close(out, x @ weight.t(), rtol=1e-4, atol=1e-3)
        assert tape.shared_loops == 40

    work(0)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.set_num_threads(1)


def products_of_many_rows_and_of_integers() -> None:
    """Some end in parts of a panel and of a group; parts of a loop are shared among threads."""
    native = engine()
    torch.set_num_threads(2)
    try:
        for rows, n, k in ((9, 1, 1), (31, 33, 129), (70, 300, 700)):
            left, weight = torch.randn(rows, k), torch.randn(n, k)
            low, few = torch.randint(-8, 8, (n, k), dtype=torch.int8), left[:3]
            panels = native.PackedWeight(weight, weight.t())
            outs = [torch.empty(rows, n), torch.empty(rows, n), torch.empty(3, n), torch.empty(3, n, dtype=torch.int32)]
            whole = torch.randint(-128, 128, (3, k), dtype=torch.int8)
            scale, zero = torch.rand(n, 1), torch.ones(n, 1, dtype=torch.int8)
            calls = [
                ("aten::mm", (left, weight.t()), None),
                ("aten::mm", (left, weight.t()), panels),
                ("airgraph::grouped_mm", (few, low, scale, zero), None),
                ("aten::_int_mm", (whole, low.t()), None),
            ]
            tape = native.Tape()
            for (name, args, packed), out in zip(calls, outs, strict=True):
                assert appended(tape, name, args, [out], packed) == "own"
            for _ in range(3):
                tape.replay()
                torch.testing.assert_close(outs[0], left @ weight.t(), rtol=1e-4, atol=1e-3)
                assert torch.equal(outs[0], outs[1])
                assert torch.equal(outs[3].long(), whole.long() @ low.long().t())
                weight.add_(1)
                panels.refresh(weight)
    finally:
        torch.set_num_threads(1)


def held_outputs_and_threads() -> None:
    graph = torch.fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    y = graph.call_function(torch.ops.aten.mm.default, (x, w))
    z = graph.call_function(torch.ops.aten.relu.default, (y,))
    graph.output((y, z))
    example = torch.randn(4, 4)
    x.meta["val"] = w.meta["val"] = y.meta["val"] = z.meta["val"] = example
    plans = (InputPlan(0, InputRole.USER, "x"), InputPlan(1, InputRole.STATIC, "w"))
    program = CaptureProgram.build("sanitized", torch.fx.GraphModule({}, graph), plans, torch.device("cpu"))
    weight = torch.eye(4)
    inputs = decide_inputs(program, [example, weight], Options(), follows_moves=True)
    device_graph = CpuRuntime().record(program, inputs, ArenaPool(engine().ReplayLock()), Options())
    lock = threading.Lock()

    def work(seed: int) -> None:
        mine = torch.full((4, 4), float(seed))
        held = []
        for _ in range(50):
            with lock:
                held.append(device_graph.run([mine, weight]))
            assert all(torch.equal(out[1], mine) for out in held)
            del held[:-3]

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def calls_through_a_door() -> None:
    """By several threads, over a weight that is given other memory now and then."""
    graph = torch.fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    y = graph.call_function(torch.ops.aten.mm.default, (x, w))
    graph.output((y,))
    example = torch.randn(4, 4)
    x.meta["val"] = w.meta["val"] = y.meta["val"] = example
    plans = (InputPlan(0, InputRole.USER, "x"), InputPlan(1, InputRole.STATIC, "w"))
    program = CaptureProgram.build("sanitized", torch.fx.GraphModule({}, graph), plans, torch.device("cpu"))
    weight, memories = torch.eye(4), [torch.eye(4), 2 * torch.eye(4)]
    weight.set_(memories[0])
    inputs = decide_inputs(program, [example, weight], Options(), follows_moves=True)
    device_graph = CpuRuntime().record(program, inputs, ArenaPool(engine().ReplayLock()), Options())
    tally, miss = [0], object()
    usual = SimpleNamespace(
        call=device_graph.usual_call(numbers=(), tally=tally, with_care=set(), is_capturing=None),
        explained=lambda failure: failure,
    )
    traits = (torch.Tensor, False, True, torch._C._dispatch_keys(weight).raw_repr())
    instructions: list[tuple[Any, ...]] = [("kept", 1, *traits), ("tensor", 0, 0, *traits)]
    reader = engine().CallReader(1, instructions, [None, weight])
    settled = engine().Settled({})
    settled.settle()
    gate = engine().Gate(engine().Watch(), settled, reader)
    door = engine().Door(
        gate=gate, callable=SimpleNamespace(usual=usual), build=lambda outputs, x: outputs[0], miss=miss, follows=None
    )

    def work(seed: int) -> None:
        for number in range(100):
            mine = torch.full((4, 4), float(seed + number))
            out = door((mine,))
            # Followed, or as it was; never half of each.
            assert out is not miss and any(torch.equal(out, mine * factor) for factor in (1, 2))

    def move() -> None:
        for number in range(40):
            weight.set_(memories[number % 2])
            time.sleep(0)

    with ThreadPoolExecutor(4) as threads:
        for each in [threads.submit(move), *(threads.submit(work, seed) for seed in range(1, 4))]:
            each.result()
    assert door.calls == tally[0] == 300
    assert torch.equal(door((example,)), example @ weight)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "kernels" not in sys.argv:
        replay_by_hand()
        failing_kernel()
        streams_beside_one_another()
        held_outputs_and_threads()
        calls_through_a_door()
    kernels_of_our_own()
    products_of_many_rows_and_of_integers()
    rows_and_attention()
    if "without-openmp" not in sys.argv:
        loops_that_threads_of_openmp_share()
    print(f"sanitized program passed by {engine().own_level()} kernels")
