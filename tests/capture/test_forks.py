"""A process may fork at any moment: neither it nor the child hangs, and what is called later is right."""

import pytest
from interrupted_program import CALLS
from process import output_of

_FORK = """
def child_ends_well(work):
    '''A child that works with what it inherited.'''
    pid = os.fork()
    if not pid:
        try:
            faulthandler.dump_traceback_later(15, exit=True)
            with torch.no_grad():
                work()
            os._exit(0)
        except BaseException as error:
            sys.stderr.write(f"in the child: {error!r}\\n")
        os._exit(1)
    end = time.monotonic() + 25
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            assert status == 0, f"the child ended with status {status}"
            return
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("the child hangs")
"""


_SAME_POOL = """
def compiled_in_the_pool():
    # Replayed by the threads: a graph by hand. Called by the child: a compiled function of its pool.
    pool = airgraph.graph_pool_handle()
    x, g = torch.ones(3), CPUGraph()
    with graph(g, pool=pool):
        y = x * 2
    compiled = torch.compile(step, backend="airgraph", dynamic=False, options={"use_graph_pool": pool})
    return Target(g.replay, decode(compiled).right)
"""


@pytest.mark.parametrize("target", ["cached", "by_hand", "compiled_in_the_pool"])
def test_a_fork_while_other_threads_replay(target: str) -> None:
    """Not while they are in torch.compile's own part of a call: there a child of torch itself hangs."""
    output_of(
        CALLS,
        _SAME_POOL,
        _FORK,
        f"target = {target}()",
        """
        stop = threading.Event()
        def work():
            with torch.no_grad():
                while not stop.is_set():
                    target.call()
        threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        def in_the_child():
            target.right()
            x, g = torch.ones(3), CPUGraph()
            with graph(g):
                y = x * 2
            g.replay()
            assert torch.equal(y, torch.full((3,), 2.0))
            airgraph.explain()
            airgraph.reset()
            g.replay()
        for _ in range(15):
            time.sleep(random.uniform(0, 0.01))
            child_ends_well(in_the_child)
        stop.set()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        target.right()
        """,
    )


def test_a_fork_within_a_replay() -> None:
    """An operator forks; parent and child each finish the call that they are in, and call again."""
    output_of(
        CALLS,
        _FORK,
        """
        pids = []

        @torch.library.custom_op("interruptions::forks", mutates_args=())
        def forks(x: Tensor) -> Tensor:
            if armed:
                armed.clear()
                pids.append(os.fork())
                if not pids[-1]:
                    faulthandler.dump_traceback_later(20, exit=True)
            return x + 1

        forks.register_fake(torch.empty_like)
        armed = []
        call = torch.compile(lambda x: forks(x * 2) * 3, backend="airgraph")
        x = torch.ones(3)
        call(x)
        for _ in range(3):
            armed.append(True)
            ok = torch.equal(call(x), torch.full((3,), 9.0)) and torch.equal(call(x * 2), torch.full((3,), 15.0))
            if not pids[-1]:
                os._exit(0 if ok else 1)
            _, status = os.waitpid(pids[-1], 0)
            assert ok and status == 0, (ok, status)
        """,
    )


def test_a_fork_while_another_thread_captures_by_hand() -> None:
    output_of(
        CALLS,
        _FORK,
        """
        target, inside, done = compiled(), threading.Event(), threading.Event()
        def capture():
            with torch.no_grad():
                x, g = torch.ones(3), CPUGraph()
                with graph(g):
                    y = x * 2
                    inside.set()
                    done.wait(60)
                g.replay()
                assert torch.equal(y, torch.full((3,), 2.0))
        thread = threading.Thread(target=capture)
        thread.start()
        inside.wait(60)
        def in_the_child():
            target.right()
            assert torch.equal(torch.ones(3) + 1, torch.full((3,), 2.0))
            airgraph.cpu.synchronize()
        for _ in range(3):
            child_ends_well(in_the_child)
        done.set()
        thread.join(60)
        """,
    )
