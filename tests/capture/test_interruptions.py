"""Signals, forks, resets and dropped graphs at any moment: nothing hangs, and what is called later is right."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from doors import both_doors, through
from process import output_of, run_program
from torch import Tensor

import airgraph
from airgraph.cpu import CPUGraph

_CALLS = """
import gc, os, random, signal, sys, tempfile, time
torch.set_grad_enabled(False)
warnings.simplefilter("ignore")
random.seed(0)

def step(cache, row, x):
    cache.index_copy_(0, row, x)
    return torch.softmax(cache * 2 + x.sum(), -1).sum(0)

def rows(x):
    return (x * 2 + 1).relu() + x.sum(0)

ROW, X = torch.tensor([1]), torch.randn(1, 8)

class Target:
    '''call: what is interrupted. right: compares with eager, on inputs of its own.'''
    def __init__(self, call, right):
        self.call, self.right = call, right

def decode(compiled):
    cache = torch.zeros(4, 8)
    def right():
        ours, theirs = torch.ones(4, 8), torch.ones(4, 8)
        torch.testing.assert_close(compiled(ours, ROW, X), step(theirs, ROW, X))
        torch.testing.assert_close(ours, theirs)
    right()
    return Target(lambda: compiled(cache, ROW, X), right)

def compiled():
    return decode(torch.compile(step, backend="airgraph", dynamic=False))

def cached():
    return decode(airgraph.inference.cache_compile(step, cache_dir=tempfile.mkdtemp(), dynamic=False, strict=True))

def by_hand():
    cache, g = torch.zeros(4, 8), CPUGraph()
    with graph(g):
        y = step(cache, ROW, X)
    def right():
        g.replay()
        torch.testing.assert_close(y, step(cache.clone(), ROW, X))
    return Target(g.replay, right)

def several_keys():
    call = torch.compile(rows, backend="airgraph", dynamic=True)
    given = [torch.randn(n, 8) for n in (2, 3, 4)]
    def right():
        for x in given:
            torch.testing.assert_close(call(x), rows(x))
    right()
    return Target(lambda: call(random.choice(given)), right)

def held_outputs():
    target = several_keys()
    held = []
    def call():
        held.append(target.call())
        del held[:-3]
    return Target(call, target.right)

def two_pools():
    targets = [compiled(), by_hand(), several_keys()]
    return Target(lambda: [t.call() for t in targets], lambda: [t.right() for t in targets])

def captured_anew():
    # Through the door without Dynamo, which signals in its own midst can leave half done.
    call = airgraph.inference.cache_compile(rows, cache_dir=tempfile.mkdtemp(), options={"force_recapture": True})
    x = torch.randn(5, 8)
    def right():
        torch.testing.assert_close(call(x), rows(x))
    right()
    return Target(lambda: call(x), right)

def moved():
    compiled = torch.compile(step, backend="airgraph", dynamic=False, options={"capture_limit": 1 << 30})
    caches = [torch.zeros(4, 8) for _ in range(3)]
    target = decode(compiled)
    return Target(lambda: compiled(random.choice(caches), ROW, X), target.right)

def captured_by_hand():
    x, held = torch.ones(3), []
    def call():
        g = CPUGraph()
        held[:] = [g]
        with graph(g):
            y = x * 2
        g.replay()
        return y
    def right():
        assert torch.equal(call(), torch.full((3,), 2.0))
    # The first capture imports what torch itself cannot have interrupted.
    right()
    return Target(call, right)

def with_resets():
    target = several_keys()
    def call():
        target.call()
        airgraph.reset()
    return Target(call, target.right)
"""

_STORM = """
class Alarm(Exception):
    pass

count, kept = 0, []

def handler(*_):
    global count
    count += 1
    raise RAISED

signal.signal(signal.SIGALRM, handler)

def call_until_signal(target, before):
    # Called within `try`: Python 3.13 does not let it catch what is raised at the end of a loop that it ends with.
    while count == before:
        target.call()

def storm(target, wanted, seconds, longest):
    '''One signal after another, each at a random moment of the calls.'''
    end = time.monotonic() + seconds
    while count < wanted and time.monotonic() < end:
        before = count
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, longest))
            call_until_signal(target, before)
        except RAISED as error:
            # Held: what was half done lives as long as the traceback.
            kept[:] = [error]
        signal.setitimer(signal.ITIMER_REAL, 0)

def within(seconds, work):
    '''From another thread, which finds what a lost lock would hide from this one.'''
    errors = []
    def run():
        try:
            with torch.no_grad():
                work()
        except BaseException as error:
            errors.append(error)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        faulthandler.dump_traceback()
        print("hangs", flush=True)
        os._exit(3)
    assert not errors, errors

target = TARGET()
# What has not ended by then hangs.
faulthandler.dump_traceback_later(SECONDS + 20, exit=True)
storm(target, WANTED, SECONDS, LONGEST)
target.right()
within(30, target.right)
assert torch._C._len_torch_dispatch_stack() == 0
assert torch.equal(torch.ones(3) + 1, torch.full((3,), 2.0))
print(count)
"""

_USUAL = ["compiled", "cached", "by_hand", "several_keys", "held_outputs", "two_pools"]


@pytest.mark.parametrize("raised", ["Alarm", "KeyboardInterrupt"])
@pytest.mark.parametrize("target", _USUAL)
def test_thousands_of_signals_leave_calls_right(target: str, raised: str) -> None:
    """As deadlines by SIGALRM, pytest-timeout and Ctrl-C do it: the handler raises wherever it finds the program."""
    settings = f"TARGET, WANTED, SECONDS, LONGEST = {target}, 3000, 5, 4e-4"
    assert int(_stormed(raised, settings)) > 300


def test_signals_while_the_python_engine_replays() -> None:
    """No replay lock stays held. Of its other blocks the halves may be: they are torch's, in Python."""
    settings = "TARGET, WANTED, SECONDS, LONGEST = by_hand, 1000, 5, 2e-3"
    assert int(_stormed("Alarm", settings, AIRGRAPH_ENGINE="python")) > 100


def _stormed(raised: str, settings: str, **environment: str) -> str:
    return output_of(_CALLS, settings, _STORM.replace("RAISED", raised), timeout_s=60, **environment)


@pytest.mark.parametrize("target", ["captured_anew", "moved", "captured_by_hand", "with_resets"])
def test_signals_during_captures_leave_calls_right(target: str) -> None:
    settings = f"TARGET, WANTED, SECONDS, LONGEST = {target}, 400, 5, 2e-2"
    assert int(_stormed("KeyboardInterrupt", settings)) > 5


def test_signals_while_other_threads_replay_the_same_graph() -> None:
    """What is interrupted is the main thread; the others must not wait for it for ever."""
    out = output_of(
        _CALLS,
        "TARGET, WANTED, SECONDS, LONGEST = lambda: SHARED, 2000, 6, 4e-4",
        """
        SHARED = compiled()
        stop, failures, calls = threading.Event(), [], [0, 0]
        def work(number):
            with torch.no_grad():
                try:
                    while not stop.is_set():
                        SHARED.right()
                        calls[number] += 1
                except BaseException as error:
                    failures.append(error)
        threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(2)]
        for thread in threads:
            thread.start()
        """,
        _STORM.replace("RAISED", "KeyboardInterrupt"),
        """
        stop.set()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive(), "a thread hangs"
        assert not failures, failures
        assert min(calls) > 5
        """,
    )
    assert int(out) > 100


def test_a_deadline_within_a_long_replay() -> None:
    """The exception comes when the operators are through, the next call is right, and a second deadline works too."""
    output_of(
        _CALLS,
        """
        class Late(Exception):
            pass
        def handler(*_):
            raise Late
        signal.signal(signal.SIGALRM, handler)
        def work(x):
            for _ in range(30):
                x = x @ x * 1e-3
            return x
        call, x = torch.compile(work, backend="airgraph"), torch.randn(300, 300) / 17
        expected = work(x)
        call(x)
        for _ in range(5):
            signal.setitimer(signal.ITIMER_REAL, 0.005)
            try:
                while True:
                    call(x)
            except Late:
                pass
            torch.testing.assert_close(call(x), expected)
        """,
    )


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
        _CALLS,
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
        _CALLS,
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
        _CALLS,
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


def test_reset_beside_calling_threads() -> None:
    """No error in either, right results, and the captures are made anew."""
    output_of(
        _CALLS,
        """
        targets = [cached(), several_keys(), by_hand(), captured_anew()]
        end, failures, calls = time.monotonic() + 8, [], [0] * len(targets)
        def work(number):
            with torch.no_grad():
                try:
                    while time.monotonic() < end and not failures:
                        for _ in range(20):
                            targets[number].call()
                        targets[number].right()
                        calls[number] += 1
                except BaseException as error:
                    failures.append(error)
        threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(len(targets))]
        for thread in threads:
            thread.start()
        resets = 0
        while time.monotonic() < end and not failures:
            for _ in range(10):
                airgraph.reset()
            resets += 10
            airgraph.explain().to_dict()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive(), "a thread hangs"
        if failures:
            raise failures[0]
        assert resets >= 10 and min(calls) > 1, (resets, calls)
        for target in targets:
            target.right()
        """,
    )


def test_reset_leaves_no_pool_behind() -> None:
    """Whatever the pools' books went through."""
    output_of(
        _CALLS,
        """
        targets = [cached(), several_keys(), held_outputs()]
        def work(target):
            with torch.no_grad():
                for _ in range(30):
                    target.call()
                    airgraph.reset()
        threads = [threading.Thread(target=work, args=(target,), daemon=True) for target in targets]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a thread hangs"
        airgraph.reset()
        gc.collect()
        assert airgraph.explain().to_dict()["pools"] == [], airgraph.explain().to_dict()["pools"]
        """,
    )


def test_resets_beside_one_another() -> None:
    output_of(
        _CALLS,
        """
        target, failures, end = several_keys(), [], time.monotonic() + 4
        def work():
            with torch.no_grad():
                try:
                    while time.monotonic() < end:
                        airgraph.reset()
                        target.right()
                except BaseException as error:
                    failures.append(error)
        threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(40)
            assert not thread.is_alive(), "a thread hangs"
        if failures:
            raise failures[0]
        """,
    )


def test_a_graph_by_hand_that_is_reset_beside_its_replays() -> None:
    """A replay then finds a capture, or says that there is none."""
    output_of(
        _CALLS,
        """
        x, g, failures, end = torch.ones(64), CPUGraph(), [], time.monotonic() + 4
        def capture():
            with graph(g):
                return (x * 2).relu()
        capture()
        seen = [0, 0]
        def work():
            while time.monotonic() < end:
                try:
                    g.replay()
                    seen[0] += 1
                except CaptureError:
                    seen[1] += 1
                except BaseException as error:
                    failures.append(error)
                    return
        threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        while time.monotonic() < end and not failures:
            g.reset()
            y = capture()
            try:
                g.replay()
            except BaseException as error:
                failures.append(error)
            assert torch.equal(y, torch.full((64,), 2.0))
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive(), "a thread hangs"
        if failures:
            raise failures[0]
        assert seen[0] > 5
        """,
    )


def test_graphs_dropped_in_each_order() -> None:
    """Two graphs, their results and their pool, in all 120 orders: what is left stays as it is."""
    output_of(
        _CALLS,
        """
        import itertools
        def made():
            pool = airgraph.graph_pool_handle()
            held = {"pool": pool}
            for i in range(2):
                x, g = torch.full((50 * (i + 1),), float(i)), CPUGraph()
                with graph(g, pool=pool):
                    y = ((x * 2).sin() * 0 + x * 2 + 1).relu()
                g.replay()
                held[f"graph {i}"], held[f"result {i}"] = g, y
            return held
        for order in itertools.permutations(made()):
            held = made()
            for name in order[:-1]:
                del held[name]
                for i in range(2):
                    if f"graph {i}" in held:
                        held[f"graph {i}"].replay()
                    if f"result {i}" in held:
                        assert (held[f"result {i}"] == i * 2 + 1).all(), (order, name, i)
        """,
    )


def test_graphs_dropped_in_every_order_while_others_run() -> None:
    """Graphs, their results, their inputs and their pool, from three threads, in cycles or not."""
    output_of(
        _CALLS,
        """
        end, failures, rounds = time.monotonic() + 8, [], [0, 0, 0]
        pool = airgraph.graph_pool_handle()
        target = compiled()
        def work(number):
            choose = random.Random(number)
            with torch.no_grad():
                try:
                    while time.monotonic() < end:
                        own = pool if choose.random() < 0.7 else airgraph.graph_pool_handle()
                        graphs, results, inputs = [], [], []
                        for i in range(4):
                            x = torch.full((choose.randint(1, 3000),), float(i + number))
                            g = CPUGraph()
                            with graph(g, pool=own, capture_error_mode="relaxed"):
                                y = ((x * 2).sin() * 0 + x * 2 + 1).relu()
                            g.replay()
                            if choose.random() < 0.4:
                                g.cycle = [g]
                            graphs.append(g), results.append((y, i + number)), inputs.append(x)
                        parts = [graphs, results, inputs]
                        del g, x, y
                        while any(parts):
                            part = choose.choice([p for p in parts if p])
                            part.pop(choose.randrange(len(part)))
                            for y, value in results:
                                assert (y == value * 2 + 1).all(), (y, value)
                            if graphs and choose.random() < 0.5:
                                choose.choice(graphs).replay()
                            if choose.random() < 0.1:
                                gc.collect()
                            y = None
                        target.right()
                        rounds[number] += 1
                except BaseException as error:
                    failures.append(error)
        threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(40)
            assert not thread.is_alive(), "a thread hangs"
        if failures:
            raise failures[0]
        gc.collect()
        assert min(rounds) > 0 and pool.graphs == 0 and pool.nbytes == 0, (rounds, pool.graphs, pool.nbytes)
        """,
    )


def test_graphs_collected_during_the_capture_of_another() -> None:
    """A collection may begin at any allocation, also while the pool's books are open."""
    output_of(
        _CALLS,
        """
        pool = airgraph.graph_pool_handle()
        x = torch.ones(100)
        gc.set_threshold(1, 1, 1)
        for i in range(60):
            g = CPUGraph()
            g.cycle = [g]
            with graph(g, pool=pool):
                y = (x * i).sin().cos() * 0 + x * i
            g.replay()
            assert (y == i).all()
            if i % 20 == 0:
                call = torch.compile(rows, backend="airgraph", dynamic=False, options={"use_graph_pool": pool})
            torch.testing.assert_close(call(x[: i + 1]), rows(x[: i + 1]))
            del g
        del y, call
        torch._dynamo.reset()
        gc.collect()
        airgraph.reset()
        assert pool.graphs == 0 and pool.nbytes == 0, (pool.graphs, pool.nbytes)
        """,
    )


_raise: list[BaseException] = []


@torch.library.custom_op("airgraph_interruptions::raises", mutates_args=())
def raises(x: Tensor) -> Tensor:
    if _raise:
        raise _raise.pop()
    return x + 1


raises.register_fake(torch.empty_like)


def with_operator(x: Tensor) -> Tensor:
    return raises(x * 2) * 3


class Stop(BaseException):
    """As frameworks raise it to unwind everything."""


_STOPS: list[Callable[[], BaseException]] = [KeyboardInterrupt, lambda: SystemExit(3), Stop, GeneratorExit]


@torch.no_grad()
@both_doors
@pytest.mark.parametrize("make", _STOPS)
def test_what_ends_programs_comes_out_of_an_operator_as_itself(
    door: str, make: Callable[[], BaseException], tmp_path: Path
) -> None:
    call = through(door, with_operator, tmp_path)
    x = torch.ones(3)
    for _ in range(3):
        assert torch.equal(call(x), with_operator(x))
        stop = make()
        _raise.append(stop)
        with pytest.raises(type(stop)) as caught:
            call(x)
        _raise.clear()
        assert caught.value is stop
    assert torch.equal(call(x), with_operator(x))
    assert airgraph.explain().to_dict()["counters"]["eager_calls"] == 0


@torch.no_grad()
@pytest.mark.parametrize("make", _STOPS)
def test_what_ends_programs_comes_out_of_a_graph_by_hand_as_itself(make: Callable[[], BaseException]) -> None:
    g, x = CPUGraph(), torch.ones(3)
    with airgraph.cpu.graph(g):
        y = with_operator(x)
    for _ in range(3):
        stop = make()
        _raise.append(stop)
        with pytest.raises(type(stop)) as caught:
            g.replay()
        _raise.clear()
        assert caught.value is stop
        g.replay()
        assert torch.equal(y, with_operator(x))


@torch.no_grad()
@pytest.mark.parametrize("options", [{"verify_every": 1}, {"force_recapture": True}, {"force_eager": True}], ids=str)
def test_what_ends_programs_comes_out_whatever_the_options(options: dict[str, object]) -> None:
    call = torch.compile(with_operator, backend="airgraph", options=options)
    x = torch.ones(3)
    for _ in range(2):
        assert torch.equal(call(x), with_operator(x))
        stop = KeyboardInterrupt()
        _raise.append(stop)
        with pytest.raises(KeyboardInterrupt) as caught:
            call(x)
        _raise.clear()
        assert caught.value is stop


def test_sys_exit_within_an_operator_ends_the_process_with_its_code() -> None:
    done = run_program(
        """
        @torch.library.custom_op("interruptions::leaves", mutates_args=())
        def leaves(x: Tensor) -> Tensor:
            raise SystemExit(7)
        leaves.register_fake(torch.empty_like)
        with torch.no_grad():
            torch.compile(lambda x: leaves(x) + 1, backend="airgraph")(torch.ones(3))
        """
    )
    assert done.returncode == 7, (done.returncode, done.stderr[-2000:])


@torch.no_grad()
def test_an_interrupted_write_does_not_count_twice() -> None:
    """The operators before the one that was interrupted ran, those after it did not, and the next call is whole."""
    cache = torch.zeros(3)

    def program(x: Tensor) -> Tensor:
        cache.add_(1)
        return raises(x) + cache

    call = torch.compile(program, backend="airgraph")
    x = torch.ones(3)
    assert torch.equal(call(x), torch.full((3,), 3.0))
    _raise.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        call(x)
    _raise.clear()
    before = cache.clone()
    assert torch.equal(call(x), x + 1 + before + 1)
    assert torch.equal(cache, before + 1)
