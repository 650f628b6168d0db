"""Signals at any moment: nothing hangs, and what is called later is right.

A third of the signals; all of them with `--full-sweep`.
"""

import pytest
from interrupted_program import CALLS
from process import output_of

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


def _wanted(signals: int, request: pytest.FixtureRequest) -> int:
    return signals if request.config.getoption("--full-sweep") else signals // 3


_USUAL = ["compiled", "cached", "by_hand", "several_keys", "held_outputs", "two_pools", "two_streams"]


@pytest.mark.parametrize("raised", ["Alarm", "KeyboardInterrupt"])
@pytest.mark.parametrize("target", _USUAL)
@pytest.mark.sampled
def test_thousands_of_signals_leave_calls_right(target: str, raised: str, request: pytest.FixtureRequest) -> None:
    """As deadlines by SIGALRM, pytest-timeout and Ctrl-C do it: the handler raises wherever it finds the program."""
    settings = f"TARGET, WANTED, SECONDS, LONGEST = {target}, {_wanted(3000, request)}, 5, 4e-4"
    assert int(_stormed(raised, settings)) > 300


def test_signals_while_the_python_engine_replays() -> None:
    """No replay lock stays held. Of its other blocks the halves may be: they are torch's, in Python."""
    settings = "TARGET, WANTED, SECONDS, LONGEST = by_hand, 1000, 5, 2e-3"
    assert int(_stormed("Alarm", settings, AIRGRAPH_ENGINE="python")) > 100


def _stormed(raised: str, settings: str, **environment: str) -> str:
    return output_of(CALLS, settings, _STORM.replace("RAISED", raised), timeout_s=60, **environment)


@pytest.mark.parametrize("target", ["captured_anew", "moved", "captured_by_hand", "with_resets"])
def test_signals_during_captures_leave_calls_right(target: str, request: pytest.FixtureRequest) -> None:
    settings = f"TARGET, WANTED, SECONDS, LONGEST = {target}, {_wanted(400, request)}, 5, 2e-2"
    assert int(_stormed("KeyboardInterrupt", settings)) > 5


def test_signals_while_other_threads_replay_the_same_graph() -> None:
    """What is interrupted is the main thread; the others must not wait for it for ever."""
    out = output_of(
        CALLS,
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
        CALLS,
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
