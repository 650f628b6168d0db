"""Autocast around a call acts as it does in eager; around a replay by hand it reaches into no kernel."""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ambient import attention, autocast, distances, inputs, products, same, with_custom_operator
from doors import both_doors, through
from torch import Tensor, nn

import airgraph
from airgraph.cpu import CPUGraph, graph

pytestmark = pytest.mark.usefixtures("settings_as_before")


def norms(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return nn.functional.layer_norm(x, (x.shape[-1],)), torch.linalg.norm(x @ y.t()), torch.logsumexp(x, -1)


def convolution(x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.conv1d(x[None, None].flatten(1, 2), y[:, None, :3].expand(-1, x.shape[0], -1))


_PROGRAMS = [distances, products, norms, attention, convolution]


@torch.no_grad()
@both_doors
@pytest.mark.parametrize("program", _PROGRAMS)
def test_autocast_around_the_call(door: str, program: Callable[..., Any], tmp_path: Path) -> None:
    """On, off, of another dtype, and off within on: what eager does there, in whatever order."""
    call = through(door, program, tmp_path)
    settings = (
        contextlib.nullcontext,
        autocast,
        contextlib.nullcontext,
        lambda: autocast(torch.float16),
        autocast,
        lambda: autocast(enabled=False),
    )
    for setting in settings * 2:
        x, y = inputs()
        with setting():
            try:
                expected = program(x, y)
            except RuntimeError:
                continue
            same(call(x, y), expected)


@torch.no_grad()
@pytest.mark.parametrize("within", [True, False], ids=["captured within autocast", "captured without"])
@pytest.mark.parametrize("program", _PROGRAMS)
def test_autocast_around_the_replay_of_a_graph_by_hand(program: Callable[..., Any], within: bool) -> None:
    """What was captured is replayed, and nothing more: as in torch.cuda's graphs, casts are part of the capture."""
    x, y = inputs()
    g = CPUGraph()
    with autocast(enabled=within):
        expected = program(x, y)
        with airgraph.cpu.graph(g):
            out = program(x, y)
    for setting in (
        contextlib.nullcontext,
        autocast,
        lambda: autocast(enabled=False),
        lambda: autocast(torch.float16),
    ):
        for each in out if isinstance(out, tuple) else (out,):
            each.zero_()
        with setting():
            g.replay()
        same(out, expected)


@torch.no_grad()
def test_autocast_does_not_reach_into_python_kernels_of_a_graph_by_hand() -> None:
    x, y = inputs()
    g = CPUGraph()
    with airgraph.cpu.graph(g):
        out = with_custom_operator(x, y)
    with autocast():
        g.replay()
    same(out, with_custom_operator(x, y))


@torch.no_grad()
def test_verification_of_python_kernels_under_autocast() -> None:
    """They see no autocast, as under torch.compile in general, in the replay and in what it is compared with."""
    call = torch.compile(with_custom_operator, backend="airgraph", options={"verify_every": 1})
    x, y = inputs()
    for setting in (contextlib.nullcontext, autocast, autocast, contextlib.nullcontext):
        with setting():
            same(call(x, y), with_custom_operator(x, y) if setting is contextlib.nullcontext else call(x, y))


@torch.no_grad()
@pytest.mark.parametrize("program", _PROGRAMS)
def test_verification_under_autocast(program: Callable[..., Any]) -> None:
    call = torch.compile(program, backend="airgraph", options={"verify_every": 1})
    for setting in (contextlib.nullcontext, autocast, autocast, contextlib.nullcontext):
        x, y = inputs()
        with setting():
            same(call(x, y), program(x, y))


@torch.no_grad()
def test_settings_of_one_thread_do_not_reach_another() -> None:
    """Autocast is a thread's own; a capture made within it serves only calls within it."""
    call = torch.compile(distances, backend="airgraph")
    x, y = inputs()
    failures: list[BaseException] = []

    def work(on: bool) -> None:
        try:
            with torch.no_grad(), autocast(enabled=on):
                for _ in range(30):
                    same(call(x, y), distances(x, y))
        except BaseException as error:
            failures.append(error)

    work(True), work(False)
    threads = [threading.Thread(target=work, args=(bool(n % 2),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_casts_that_autocast_keeps_stay_out_of_graphs_by_hand_and_theirs_within() -> None:
    weight, x, captured = nn.Linear(8, 8), torch.randn(2, 8), CPUGraph()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = weight(x)
        with torch.no_grad(), graph(captured):
            made = weight(x)
        torch.testing.assert_close(weight(x), expected)
        with torch.no_grad():
            weight.weight.mul_(3)
    captured.replay()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(made, weight(x).detach())
