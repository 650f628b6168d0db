"""What ends programs comes out of an operator within a graph as itself, and leaves the graph usable."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from doors import both_doors, through
from process import run_program
from torch import Tensor

import airgraph
from airgraph.cpu import CPUGraph

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
