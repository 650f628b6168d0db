"""The threads of the engine that run streams: how many there are, forks, and the end of the process."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_engine import native
from process import output_of

_SETUP = f"""
import os, gc, sys
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[2])]}
from test_streams_beside import TwoStacks
from airgraph.runtime.cpu import beside
beside._LEAST_GAIN_NS = float("-inf")
beside._cores = lambda: 2
"""
# What has workers: streams that run beside one another, and loops of kernels of our own.
_CALLS = {
    "streams": """
torch.set_num_threads(1)
model, x, options = TwoStacks(), torch.randn(3, 16), {"kernels": "exact"}
""",
    "products": """
torch.set_num_threads(2)
model, x, options = torch.nn.Sequential(*(torch.nn.Linear(600, 600) for _ in range(4))), torch.randn(1, 600), {}
""",
}
_CALL = """
torch.set_grad_enabled(False)
threads = lambda: set(os.listdir("/proc/self/task"))
# What torch starts by itself.
eagers = model(x)
torch.compile(lambda x: x + 1, backend="airgraph")(x)
before = threads()
call = torch.compile(model, backend="airgraph", fullgraph=True, options=options)
expected = call(x).clone()
torch.testing.assert_close(expected, eagers)
for _ in range(100):
    call(x)
workers = threads() - before
"""


def _run(*program: str) -> str:
    return output_of(_SETUP, *program)


@native
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads as Linux shows them")
def test_there_are_threads_only_while_a_graph_needs_them() -> None:
    output = _run("""
        torch.set_grad_enabled(False)
        torch.set_num_threads(1)
        model, x = TwoStacks(), torch.randn(3, 16)
        threads = lambda: len(os.listdir("/proc/self/task"))
        # What torch starts by itself.
        torch.compile(lambda x: x + 1, backend="airgraph")(x)
        before = threads()
        call = torch.compile(model, backend="airgraph", fullgraph=True, options={"kernels": "exact"})
        call(x)
        print(threads() - before)
        del call
        airgraph.reset(); torch._dynamo.reset(); gc.collect()
        print(threads() - before)
        call = torch.compile(model, backend="airgraph", fullgraph=True, options={"kernels": "exact"})
        print(torch.equal(call(x), model(x)), threads() - before)
    """)
    assert output.split() == ["1", "0", "True", "1"]


@native
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads as Linux shows them")
def test_intra_op_threads_are_divided_among_the_streams() -> None:
    output = _run("""
        from airgraph import scope
        torch.set_grad_enabled(False)
        torch.set_num_threads(4)
        def program(x):
            with scope.stream("side"):
                beside = x.sin()
            return x.cos(), beside
        x = torch.randn(1 << 18)
        threads = lambda: len(os.listdir("/proc/self/task"))
        call = torch.compile(program, backend="airgraph", fullgraph=True, options={"kernels": "exact"})
        # What torch starts by itself.
        torch.compile(lambda x: x + 1, backend="airgraph")(torch.ones(3))
        before = threads()
        for _ in range(200):
            call(x)
        print(threads() - before)
    """)
    # The worker, and one more thread for each of two streams.
    assert int(output) <= 3


@native
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads as Linux shows them")
@pytest.mark.parametrize("of", _CALLS)
def test_workers_sleep_when_nothing_is_replayed(of: str) -> None:
    workers, seconds = _run(
        _CALLS[of],
        _CALL,
        """
        import time
        time.sleep(0.05)
        begin = time.process_time()
        time.sleep(0.4)
        print(len(workers), time.process_time() - begin)
        """,
    ).split()
    # Spinning, a worker would take all of it.
    assert workers == "1" and float(seconds) < 0.2


@native
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="holds threads as Linux lets a process do it")
@pytest.mark.parametrize("of", _CALLS)
def test_what_a_worker_does_not_begin_the_calling_thread_runs(of: str) -> None:
    output = _run(
        _CALLS[of],
        _CALL,
        """
        import ctypes, signal, time
        (worker,) = workers
        # A thread within `pause` as its handler of one signal stands still until it has handled another.
        libc = ctypes.CDLL(None)
        for number, handler in ((signal.SIGUSR1, libc.pause), (signal.SIGUSR2, libc.abs)):
            libc.signal(number, ctypes.cast(handler, ctypes.c_void_p))
        def blocked():
            (line,) = (l for l in open(f"/proc/self/task/{worker}/status") if l.startswith("SigBlk"))
            return bool(int(line.split()[1], 16) >> (signal.SIGUSR1 - 1) & 1)
        def is_held(wanted):
            deadline = time.monotonic() + 20
            while blocked() is not wanted and time.monotonic() < deadline:
                time.sleep(0.001)
            return blocked()
        # The worker is in the midst of nothing any more.
        time.sleep(0.1)
        libc.tgkill(os.getpid(), int(worker), signal.SIGUSR1)
        print(is_held(True), all(torch.equal(call(x), expected) for _ in range(200)), is_held(True))
        libc.tgkill(os.getpid(), int(worker), signal.SIGUSR2)
        print(is_held(False), all(torch.equal(call(x), expected) for _ in range(200)))
        """,
    )
    assert output.splitlines() == ["True True True", "False True"]


@native
def test_a_child_of_a_fork_replays_with_workers_of_its_own() -> None:
    # By hand: Dynamo's own locks do not survive a fork while another thread is in a compiled function.
    output = _run("""
        import threading
        torch.set_grad_enabled(False)
        model, x = TwoStacks(), torch.randn(3, 16)
        expected, graph = model(x), airgraph.cpu.CPUGraph(kernels="exact")
        with airgraph.cpu.graph(graph):
            result = model(x)
        end = threading.Event()
        def work():
            while not end.is_set():
                graph.replay()
        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(40):
            child = os.fork()
            if child == 0:
                right = True
                for _ in range(50):
                    result.zero_()
                    graph.replay()
                    right = right and torch.equal(result, expected)
                os._exit(0 if right else 1)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        end.set()
        thread.join()
    """)
    assert output.split() == ["0"] * 40


@native
def test_many_workers_start_in_a_child_of_a_fork() -> None:
    output = _run("""
        beside._cores = lambda: 6
        # After a fork, torch makes its pool anew for the first thread that asks for it.
        torch.set_num_threads(1)
        x, graph = torch.randn(64, 64), airgraph.cpu.CPUGraph()
        with airgraph.cpu.graph(graph):
            side = []
            for number in range(5):
                with airgraph.scope.stream(str(number)):
                    side.append((x @ x) @ x)
                    airgraph.Event(str(number)).record()
            for number in range(5):
                airgraph.Event(str(number)).wait()
            result = sum(side)
        graph.replay()
        for _ in range(60):
            child = os.fork()
            if child == 0:
                for _ in range(20):
                    graph.replay()
                os._exit(0)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    assert output.split() == ["0"] * 60


@native
def test_a_process_ends_beside_its_workers() -> None:
    assert _run("""
        torch.set_grad_enabled(False)
        model, x = TwoStacks(), torch.randn(3, 16)
        call = torch.compile(model, backend="airgraph", fullgraph=True, options={"kernels": "exact"})
        for _ in range(3):
            call(x)
        print("done")
    """).split() == ["done"]


@native
@pytest.mark.parametrize("streams", [1, 2])
def test_a_process_ends_while_a_graph_is_replayed(streams: int) -> None:
    """Not with the calls of a model, whose results PyTorch frees: a thread that ends within that aborts the process."""
    assert _run(f"""
        import threading, airgraph
        torch.set_grad_enabled(False)
        model, x, graph = TwoStacks(), torch.randn(3, 16), airgraph.cpu.CPUGraph()
        with airgraph.cpu.graph(graph):
            side = airgraph.cpu.current_stream() if {streams} == 1 else airgraph.cpu.Stream()
            side.wait_stream(airgraph.cpu.current_stream())
            with airgraph.cpu.stream(side):
                beside = (x @ x.T).exp()
            main = (x @ x.T).sin()
            airgraph.cpu.current_stream().wait_stream(side)
            result = main + beside
        begun = threading.Event()
        def forever():
            while True:
                graph.replay()
                begun.set()
        threading.Thread(target=forever, daemon=True).start()
        begun.wait()
        print("done")
    """).split() == ["done"]
