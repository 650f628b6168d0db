"""Resets beside calls and beside one another: nothing hangs or is lost, and what is called later is right."""

import threading
from typing import Any

import pytest
import torch
from interrupted_program import CALLS
from process import output_of

import airgraph
from airgraph.errors import CaptureError
from airgraph.runtime.cpu import captures


def test_reset_beside_calling_threads() -> None:
    """No error in either, right results, and the captures are made anew."""
    output_of(
        CALLS,
        """
        targets = [cached(), several_keys(), by_hand(), captured_anew()]
        end, failures, calls = time.monotonic() + 3, [], [0] * len(targets)
        def goes_on():
            return not failures and (time.monotonic() < end or min(calls) < 2)
        def work(number):
            with torch.no_grad():
                try:
                    while goes_on():
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
        while goes_on():
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
        CALLS,
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
        CALLS,
        """
        target, failures, end = several_keys(), [], time.monotonic() + 2
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
        CALLS,
        """
        x, g, failures, end = torch.ones(64), CPUGraph(), [], time.monotonic() + 2
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


def test_a_replay_that_finds_its_graph_captured_anew_leaves_the_capture_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between what a replay reads of its graph and what it does, another thread may reset it and begin a capture."""
    captured_anew, has_read = threading.Event(), threading.Event()
    check = captures.check_unsafe_call

    def check_late(call: str, **of: Any) -> None:
        if threading.current_thread() is replaying:
            has_read.set()
            assert captured_anew.wait(30)
        check(call, **of)

    def replay() -> None:
        with pytest.raises(CaptureError, match="this graph holds no capture"):
            graph.replay()
        raised.append(True)

    monkeypatch.setattr(captures, "check_unsafe_call", check_late)
    graph, x, raised = airgraph.cpu.CPUGraph(), torch.ones(4), []
    replaying = threading.Thread(target=replay)
    with airgraph.cpu.graph(graph):
        x * 2
    replaying.start()
    assert has_read.wait(30)
    graph.reset()
    with airgraph.cpu.graph(graph):
        captured_anew.set()
        replaying.join(30)
        y = x * 3
    graph.replay()
    assert raised == [True] and torch.equal(y, x * 3)
