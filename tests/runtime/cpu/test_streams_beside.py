"""Streams that run beside one another on CPU: results, errors, threads and what surrounds a replay."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from doors import both_doors, through
from four_tensors import FourTensors
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from native_engine import native
from random_streams import STEPS, copied_at_the_end, module_of
from reports import report
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import airgraph
from airgraph import scope
from airgraph.errors import ReplayError
from airgraph.memory.pool import ArenaPool
from airgraph.options import Options
from airgraph.passes.pipeline import run_passes
from airgraph.passes.races import insert_waits, races_in
from airgraph.passes.stream_check import check_streams
from airgraph.program.inputs import InputPlan, InputRole
from airgraph.program.program import CaptureProgram
from airgraph.runtime.cpu import beside
from airgraph.runtime.cpu.runtime import CpuRuntime
from airgraph.runtime.engine.loading import engine
from airgraph.runtime.recording.inputs import decide_inputs


@pytest.fixture(autouse=True)
def _beside_whatever_it_brings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "_LEAST_GAIN_NS", float("-inf"))
    monkeypatch.setattr(beside, "_cores", lambda: 4)


class TwoStacks(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.left = nn.Sequential(*(nn.Linear(width, width) for _ in range(4)))
        self.right = nn.Sequential(*(nn.Linear(width, width) for _ in range(4)))
        self.forked, self.done = airgraph.Event("forked"), airgraph.Event("done")

    def forward(self, x: Tensor) -> Tensor:
        x = x + 1
        self.forked.record()
        with scope.stream("right"):
            self.forked.wait()
            right = self.right(x)
            self.done.record()
        left = self.left(x)
        self.done.wait()
        return left + right


def _row() -> dict[str, Any]:
    (row,) = report()["graphs"]
    found: dict[str, Any] = row
    return found


@torch.no_grad()
@both_doors
def test_streams_run_on_threads(door: str, tmp_path: Path) -> None:
    model = TwoStacks()
    call = through(door, model.forward, tmp_path, strict=True, kernels="exact")
    for _ in range(200):
        x = torch.randn(3, 16)
        assert torch.equal(call(x), model(x))
    assert (_row()["streams"], _row()["threads"]) == (2, 2)


@torch.no_grad()
def test_four_tensors_a_thousand_times() -> None:
    model, twin = FourTensors(size=64), FourTensors(size=64)
    call = torch.compile(model, backend="airgraph", fullgraph=True)
    for number in range(1000):
        given = [torch.full((64, 64), float(number % 7 + i)) for i in range(4)]
        for ours, theirs in zip(call(*given), twin(*given), strict=True):
            assert torch.equal(ours, theirs), number
    assert (_row()["streams"], _row()["threads"], _row()["replays"]) == (3, 3, 1000)


@torch.no_grad()
def test_one_after_another_where_the_option_says_so() -> None:
    model = TwoStacks()
    call = torch.compile(model, backend="airgraph", fullgraph=True, options={"max_streams": 0, "kernels": "exact"})
    x = torch.randn(3, 16)
    assert torch.equal(call(x), model(x))
    assert (_row()["streams"], _row()["threads"]) == (2, 1)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEPS, max_size=24), st.integers(0, 1000))
def test_random_programs_give_eagers_results(steps: list[tuple[str, str | None, int, int]], seed: int) -> None:
    gm = module_of(steps)
    insert_waits(gm, races_in(gm.graph))
    gm.recompile()
    torch.manual_seed(seed)
    x, y = torch.randn(64), torch.randn(64)
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), (x, y), strict=True):
        node.meta["val"] = value
    plans = (InputPlan(0, InputRole.MUTATED, "x"), InputPlan(1, InputRole.MUTATED, "y"))
    program = CaptureProgram.build("random", gm, plans, torch.device("cpu"))
    options = Options(verify_every=1)
    with torch.no_grad():
        graph = CpuRuntime().record(
            program,
            decide_inputs(program, [x, y], options, follows_moves=True),
            ArenaPool(engine().ReplayLock()),
            options,
        )
        twins = [x.clone(), y.clone()]
        for _ in range(5):
            expected = gm(*twins)
            for ours, theirs in zip(graph.run([x, y]), expected, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
            torch.testing.assert_close([x, y], twins, rtol=0, atol=0, equal_nan=True)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEPS.filter(lambda step: step[0] != "add_"), max_size=20), st.integers(0, 99), st.integers(0, 99))
def test_random_programs_that_write_arguments_give_eagers_results(
    steps: list[tuple[str, str | None, int, int]], first: int, second: int
) -> None:
    gm = module_of(steps)
    copied_at_the_end(gm, first, second)
    eager = copy.deepcopy(gm)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_passes(gm, Options(), check=lambda checked: check_streams(checked, "fix", "random"))
    x, y = torch.randn(64), torch.randn(64)
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), (x, y), strict=True):
        node.meta["val"] = value
    plans = (InputPlan(0, InputRole.MUTATED, "x"), InputPlan(1, InputRole.MUTATED, "y"))
    program = CaptureProgram.build("random", gm, plans, torch.device("cpu"))
    with torch.no_grad():
        graph = CpuRuntime().record(
            program,
            decide_inputs(program, [x, y], Options(), follows_moves=True),
            ArenaPool(engine().ReplayLock()),
            Options(),
        )
        twins = [x.clone(), y.clone()]
        for _ in range(5):
            expected = eager(*twins)
            for ours, theirs in zip(graph.run([x, y]), expected, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
            torch.testing.assert_close([x, y], twins, rtol=0, atol=0, equal_nan=True)


class _Fails(nn.Module):
    """Looks up an index on each of two streams; `done` counts what came before both."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 8))
        self.register_buffer("done", torch.zeros(()))

    def forward(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        self.done.add_(1)
        with scope.stream("side"):
            beside = nn.functional.embedding(first, self.weight)
        return beside, nn.functional.embedding(second, self.weight)


@native
@torch.no_grad()
@pytest.mark.parametrize(("bad", "line"), [((9, 1), 3), ((1, 9), 4), ((9, 9), 3)])
def test_the_first_failure_of_the_program_is_raised(bad: tuple[int, int], line: int) -> None:
    model = _Fails()
    call = torch.compile(model, backend="airgraph", fullgraph=True)
    good = (torch.tensor([1, 2]), torch.tensor([3, 0]))
    call(*good)
    where = f"{Path(__file__).name}:{_Fails.forward.__code__.co_firstlineno + line}"
    for number in range(20):
        with pytest.raises(ReplayError, match=rf"embedding.*{where}.*index out of range"):
            call(*(torch.tensor([0, each]) for each in bad))
        # As in eager: what comes before it is done.
        assert model.done == 2 * number + 2
        torch.testing.assert_close(call(*good), tuple(model.weight[each] for each in good))


@torch.no_grad()
def test_an_operator_in_python_runs_on_the_thread_of_the_call() -> None:
    seen: list[int] = []

    @torch.library.custom_op("airgraph_tests::where", mutates_args=())
    def where(x: Tensor) -> Tensor:
        seen.append(threading.get_ident())
        return x.clone()

    where.register_fake(torch.empty_like)

    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        with scope.stream("side"):
            beside = where(x.sin().sin())
        return x.cos().cos(), beside

    call = torch.compile(program, backend="airgraph", fullgraph=True)
    x = torch.randn(8)
    for _ in range(20):
        torch.testing.assert_close(call(x), program(x))
    assert set(seen) == {threading.get_ident()}


@torch.no_grad()
def test_random_numbers_come_as_in_eager() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with scope.stream("side"):
            beside = torch.rand_like(x) * 2
        main = torch.randn_like(x)
        with scope.stream("side"):
            last = torch.rand_like(x)
        return main, beside, last

    call = torch.compile(program, backend="airgraph", fullgraph=True)
    x = torch.empty(100)
    for seed in range(30):
        torch.manual_seed(seed)
        ours = call(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(ours, program(x), rtol=0, atol=0)


@torch.no_grad()
def test_random_numbers_of_operators_of_the_users_come_as_in_eager() -> None:
    # Nothing says of it that it draws any.
    @torch.library.custom_op("airgraph_tests::noise", mutates_args=())
    def noise(x: Tensor) -> Tensor:
        return torch.rand_like(x)

    noise.register_fake(torch.empty_like)

    def program(x: Tensor) -> tuple[Tensor, ...]:
        with scope.stream("a"):
            first = noise(x)
        second = torch.rand_like(x)
        with scope.stream("b"):
            third = noise(x)
        return first, second, third, noise(x)

    call = torch.compile(program, backend="airgraph", fullgraph=True)
    x = torch.empty(100)
    for seed in range(30):
        torch.manual_seed(seed)
        ours = call(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(ours, program(x), rtol=0, atol=0)


@native
@torch.no_grad()
def test_a_side_stream_takes_denormals_as_the_caller_does() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        with scope.stream("side"):
            beside = x * 0.5
        return x * 0.25, beside

    call = torch.compile(program, backend="airgraph", fullgraph=True)
    x = torch.full((8,), 1.5e-38)
    assert (call(x)[1] != 0).all()
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor has no such mode")
    try:
        for _ in range(50):
            assert all((each == 0).all() for each in call(x))
    finally:
        torch.set_flush_denormal(False)
    for _ in range(50):
        assert all((each != 0).all() for each in call(x))


class Counts(TorchDispatchMode):
    calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


@native
@pytest.mark.parametrize(
    "around",
    [
        lambda: torch.autocast("cpu", torch.bfloat16),
        torch.inference_mode,
        torch.enable_grad,
        Counts,
        lambda: torch.device("meta"),
        lambda: torch._C._AutoDispatchBelowAutograd(),
    ],
    ids=["autocast", "inference", "gradients", "dispatch mode", "default device", "below autograd"],
)
def test_a_side_stream_is_shielded_from_what_is_around_a_replay(around: Any) -> None:
    """Its operators run on other threads, some by the dispatcher."""
    g, side = airgraph.cpu.CPUGraph(kernels="exact"), airgraph.cpu.Stream()
    x = torch.randn(16, 16, requires_grad=True)
    with torch.no_grad(), airgraph.cpu.graph(g):
        side.wait_stream(airgraph.cpu.current_stream())
        with airgraph.cpu.stream(side):
            inverse = torch.linalg.inv(x)
            product = x @ x
        ordered, _ = (x @ x.t()).sort()
        airgraph.cpu.current_stream().wait_stream(side)
    with torch.no_grad():
        expected = [torch.linalg.inv(x), x @ x, (x @ x.t()).sort()[0]]
    for _ in range(20):
        outputs = [inverse, product, ordered]
        for output in outputs:
            output.zero_()
        with around() as mode:
            g.replay()
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(outputs, expected, strict=True))
        assert not any(output.requires_grad for output in outputs)
        assert not isinstance(mode, Counts) or mode.calls == 0


@native
@torch.no_grad()
def test_many_threads_share_the_workers() -> None:
    models = [TwoStacks() for _ in range(3)]
    calls = [torch.compile(model, backend="airgraph", fullgraph=True, options={"kernels": "exact"}) for model in models]
    x = torch.randn(3, 16)
    expected = [model(x) for model in models]
    for call in calls:
        call(x)
    wrong: list[int] = []

    def work(number: int) -> None:
        with torch.no_grad():
            for _ in range(300):
                if not torch.equal(calls[number](x), expected[number]):
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@native
@torch.no_grad()
@pytest.mark.parametrize("raised", [KeyboardInterrupt, ValueError])
def test_what_an_operator_raises_in_mid_replay_leaves_all_usable(raised: type[BaseException]) -> None:
    fails = [False]

    @torch.library.custom_op("airgraph_tests::may_raise", mutates_args=())
    def may_raise(x: Tensor) -> Tensor:
        if fails[0]:
            raise raised("now")
        return x.clone()

    may_raise.register_fake(torch.empty_like)
    model = TwoStacks()

    def program(x: Tensor) -> Tensor:
        return model(may_raise(x)) + model.right(x)

    call = torch.compile(program, backend="airgraph", fullgraph=True, options={"kernels": "exact"})
    x = torch.randn(3, 16)
    expected = program(x)
    for _ in range(30):
        fails[0] = True
        with pytest.raises((raised, ReplayError)):
            call(x)
        fails[0] = False
        assert torch.equal(call(x), expected)


@pytest.fixture
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@native
@torch.no_grad()
def test_the_calls_number_of_threads_is_as_before(_one_thread: None) -> None:
    torch.set_num_threads(2)
    model, x = TwoStacks(), torch.randn(3, 16)
    call = torch.compile(model, backend="airgraph", fullgraph=True)
    call(x)
    assert torch.get_num_threads() == 2
