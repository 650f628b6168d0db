"""Captures and the fallback serve a program without a callable around them, as training and partitioning will need."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import airgraph
from airgraph.capture.captures import NEW_KEY, Captures
from airgraph.capture.fallback import Fallback, Mode
from airgraph.errors import NotAdmitted, UnsupportedGraph
from airgraph.options import Options
from airgraph.program.inputs import InputPlan, InputRole
from airgraph.program.program import CaptureProgram
from airgraph.runtime.registry import runtime_for

_CPU = torch.device("cpu")


def _program(*roles: InputRole) -> CaptureProgram:
    """`(x * 2 + y,)`."""
    gm = make_fx(lambda x, y: [x * 2 + y], tracing_mode="fake")(torch.ones(3), torch.ones(3))
    plans = tuple(InputPlan(index, role, name) for index, (role, name) in enumerate(zip(roles, "xy", strict=True)))
    return CaptureProgram.build("alone", gm, plans, _CPU)


def _args() -> list[Any]:
    return [torch.randn(3), torch.randn(3)]


def test_captures_alone_are_made_kept_and_dropped() -> None:
    program, runtime, warned = _program(InputRole.USER, InputRole.USER), runtime_for("cpu"), []
    options = Options(capture_limit=2)
    pool = runtime.open_pool(_CPU)
    captures = Captures(
        program, runtime, options, pool, distrusted=False, warn_once=lambda what, text: warned.append(what)
    )
    key = captures.key(_args())
    with pool.replay_lock.holding("alone"):
        first, second = (captures.capture(key, _args(), NEW_KEY, runs=False) for _ in range(2))
        for graph in (first, second):
            x, y = _args()
            (out,) = graph.device_graph.run([x, y])
            torch.testing.assert_close(out, x * 2 + y)
            captures.served(graph)
        captures.served(first)
        assert captures.of(key) == [first, second]
        third = captures.capture(key, _args(), "another", runs=False)
        captures.served(third)
        assert captures.all() == [first, third]
        assert warned == ["limit"]
        captures.forget_all()
    assert captures.all() == captures.of(key) == []
    assert [row["state"] for row in airgraph.explain().to_dict()["graphs"]] == ["captured", "dropped", "captured"]


def test_a_fallback_alone_runs_a_program_and_says_why() -> None:
    program = _program(InputRole.USER, InputRole.MUTATED)
    fallback = Fallback(program, lambda x, y: [x * 2 + y])
    key = Captures(program, runtime_for("cpu"), Options(), None, distrusted=False, warn_once=fallback.warn_once).key(
        _args()
    )
    assert fallback.mode is Mode.CAPTURED and not fallback.serves(key)
    with pytest.warns(UserWarning, match="alone runs eagerly: it is odd"):
        fallback.take(key, UnsupportedGraph("it is odd"))
    assert fallback.mode is Mode.PARTLY and fallback.serves(key)
    x, y = _args()
    torch.testing.assert_close(fallback.run([x, y])[0], x * 2 + y)
    with pytest.warns(UserWarning, match="traced for other arguments"):
        torch.testing.assert_close(fallback.run([x, x])[0], x * 3)
    with pytest.raises(NotAdmitted, match="shares memory"):
        Fallback(program, None).run([x, x])
    fallback.forget()
    assert fallback.mode is Mode.CAPTURED and not fallback.serves(key)
    fallback.take_all("it is old", warn=False)
    assert fallback.mode is Mode.EAGER and fallback.serves(key)
