"""Programs broken on purpose, each in a process of its own: a named message, and life goes on."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from devices import simulator
from process import run_command

pytestmark = pytest.mark.skipif(simulator("npu") is None, reason="needs the simulated Ascend runtime")

_PREAMBLE = """
import warnings, torch, torch_npu, airgraph
caught = warnings.catch_warnings(record=True).__enter__()
warnings.simplefilter("always")
torch.set_grad_enabled(False)

def operator(name):
    def define(function):
        made = torch.library.custom_op("broken::" + name, mutates_args=())(function)
        made.register_fake(lambda x: torch.empty_like(x))
        return made
    return define

def messages():
    return [str(w.message) for w in caught if "runs eagerly" in str(w.message)]

def still_works():
    after = torch.compile(lambda x: x * 3 + 1, backend="airgraph", fullgraph=True)
    for value in (1.0, 2.0):
        assert after(torch.full((4,), value, device="npu")).tolist() == [3 * value + 1] * 4
    assert airgraph.explain().to_dict()["graphs"][-1]["state"] == "captured"
    print("STILL WORKS")
"""


# Part of a program: an operator that works on another stream and does not join.
_FORKS = """
side = torch.npu.Stream()

@operator("forks")
def forks(x: torch.Tensor) -> torch.Tensor:
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        y = x * 2
    if not torch.npu.is_current_stream_capturing():
        torch.npu.synchronize()
    return y
"""

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs the parts of a program after the preamble, with these environment variables; gives its stdout."""

    def run_program(*parts: str, **environment: str) -> str:
        script = tmp_path / "program.py"
        script.write_text("".join([_PREAMBLE, *map(textwrap.dedent, parts)]))
        done = run_command(str(script), device="npu", timeout_s=120, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "STILL WORKS" in done.stdout
        return done.stdout

    return run_program


def test_a_stream_that_is_forked_and_not_joined(run: Run) -> None:
    out = run(
        _FORKS,
        """
        @operator("joins")
        def joins(x: torch.Tensor) -> torch.Tensor:
            side.wait_stream(torch.npu.current_stream())
            with torch.npu.stream(side):
                y = x * 2
            torch.npu.current_stream().wait_stream(side)
            return y

        good = torch.compile(lambda x: joins(x) + 1, backend="airgraph")
        for _ in range(3):
            assert good(torch.ones(4, device="npu")).tolist() == [3.0] * 4
        assert messages() == []
        bad = torch.compile(lambda x: forks(joins(x)) + 1, backend="airgraph")
        for _ in range(3):
            assert bad(torch.ones(4, device="npu")).tolist() == [5.0] * 4
        print(messages())
        assert len(messages()) == 1
        still_works()
    """,
    )
    assert "broken::forks at " in out and "does not join the graph's stream again" in out


def test_a_stream_that_does_not_wait_for_the_graphs(run: Run) -> None:
    out = run("""
        side = torch.npu.Stream()

        @operator("does_not_wait")
        def does_not_wait(x: torch.Tensor) -> torch.Tensor:
            with torch.npu.stream(side):
                y = x * 2
            torch.npu.current_stream().wait_stream(side)
            return y

        compiled = torch.compile(lambda x: does_not_wait(x + 1) + 1, backend="airgraph")
        for _ in range(2):
            torch.npu.synchronize()
            compiled(torch.ones(4, device="npu"))
        print(messages())
        assert len(messages()) == 1
        still_works()
    """)
    assert "broken::does_not_wait at " in out and "recorded outside the capture" in out


def test_a_missing_wait_within_a_graph_shows(run: Run) -> None:
    run(
        """
        side = torch.npu.Stream()

        def define(name, waits):
            @operator(name)
            def fork(x: torch.Tensor) -> torch.Tensor:
                current = torch.npu.current_stream()
                side.wait_stream(current)
                with torch.npu.stream(side):
                    y = (x * 2).exp().log()
                if waits:
                    current.wait_stream(side)
                z = y + 1
                current.wait_stream(side)
                return z
            return fork

        results = {}
        for name, waits in (("waits", True), ("misses_a_wait", False)):
            fork = define(name, waits)
            compiled = torch.compile(lambda x: fork(x), backend="airgraph")
            results[name] = [
                torch.allclose(compiled(torch.full((4,), float(i), device="npu")).cpu(), torch.full((4,), 2.0 * i + 1))
                for i in range(1, 9)
            ]
        print(results)
        assert all(results["waits"]) and not all(results["misses_a_wait"])
        still_works()
        """,
        SIMCANN_SCHEDULE="adversarial",
    )


def test_no_stream_left(run: Run) -> None:
    out = run(
        """
        compiled = torch.compile(lambda x: x * 2, backend="airgraph")
        for _ in range(2):
            assert compiled(torch.ones(4, device="npu")).tolist() == [2.0] * 4
        print(messages())
        assert len(messages()) == 1
        print("STILL WORKS")
        """,
        SIMCANN_STREAMS="3",
    )
    assert "has no stream or event left" in out


def test_few_streams_left(run: Run) -> None:
    """torch makes all streams of a priority when the first is asked for; tags share what there is."""
    run(
        """
        from airgraph import scope

        def program(x):
            made = []
            for number in range(6):
                with scope.stream(str(number), priority=-(number == 3)):
                    made.append((x + number) * 2)
            return made

        compiled = torch.compile(program, backend="airgraph", fullgraph=True)
        for _ in range(3):
            made = compiled(torch.ones(4, device="npu"))
            assert [each.tolist() for each in made] == [[2.0 * (number + 1)] * 4 for number in range(6)]
        (row,) = airgraph.explain().to_dict()["graphs"]
        assert (row["state"], row["streams"], messages()) == ("captured", 4, []), (row, messages())
        print("STILL WORKS")
        """,
        SIMCANN_STREAMS="40",
    )


def test_no_memory_left_for_a_capture(run: Run) -> None:
    out = run(
        """
        x = torch.ones(24 << 20, device="npu", dtype=torch.uint8)
        y = torch.ones_like(x)
        # Eagerly it needs one such tensor more; captured, copies of the inputs too.
        compiled = torch.compile(lambda x, y: x + y, backend="airgraph")
        for _ in range(2):
            out = compiled(x, y)
            assert out[:3].tolist() == [2, 2, 2]
            del out
        print(messages())
        assert len(messages()) == 1
        still_works()
        """,
        SIMCANN_MEMORY="112MiB",
    )
    assert "aten::add" in out and "the device is out of memory" in out


def test_failed_captures_leave_no_memory_behind(run: Run) -> None:
    run(
        _FORKS,
        """
        import gc

        still_works()
        airgraph.reset()
        gc.collect()
        torch.npu.empty_cache()
        before = torch.npu.memory_reserved()
        for _ in range(5):
            torch._dynamo.reset()
            compiled = torch.compile(lambda x: forks((x + 1).exp()), backend="airgraph")
            compiled(torch.zeros(1 << 20, device="npu"))
        assert len(messages()) == 5
        airgraph.reset()
        del compiled
        torch._dynamo.reset()
        gc.collect()
        torch.npu.empty_cache()
        assert torch.npu.memory_reserved() <= before, (before, torch.npu.memory_reserved())
        still_works()
    """,
    )


def test_an_operator_without_a_kernel(run: Run) -> None:
    out = run("""
        compiled = torch.compile(lambda x: torch.linalg.qr(x)[0] + 1, backend="airgraph")
        for _ in range(2):
            try:
                compiled(torch.eye(3, device="npu"))
            except RuntimeError as error:
                print("RAISED", error)
        print(messages())
        assert len(messages()) == 1
        still_works()
    """)
    assert "aten::linalg_qr at " in out and "torch_npu has no aclnn kernel for it" in out
    # Eager has none either: simcann says which, and where to add it.
    assert out.count("no such operator: Qr") >= 2 and "simcann/opapi" in out


def test_a_capture_in_error_mode_global_is_spoiled_by_another_thread_and_named(run: Run) -> None:
    out = run("""
        import threading

        @operator("meets_another_thread")
        def meets_another_thread(x: torch.Tensor) -> torch.Tensor:
            if torch.npu.is_current_stream_capturing():
                def synchronise():
                    try:
                        torch.npu.synchronize()
                    except RuntimeError:
                        pass
                thread = threading.Thread(target=synchronise)
                thread.start()
                thread.join()
            return x * 2

        for mode, expected in (("global", 1), ("thread_local", 1), ("relaxed", 1)):
            torch._dynamo.reset()
            compiled = torch.compile(
                lambda x: meets_another_thread(x) + 1, backend="airgraph", options={"capture_error_mode": mode}
            )
            for _ in range(2):
                assert compiled(torch.ones(4, device="npu")).tolist() == [3.0] * 4
            print(mode, len(messages()), messages()[-1:])
        still_works()
    """)
    assert "global 1" in out and "thread_local 1" in out and "relaxed 1" in out
