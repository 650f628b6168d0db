"""Whether streams run beside one another on CPU, by an estimate of what it brings."""

import re
from typing import Any

import pytest
import torch
from native_engine import native
from reports import report
from torch import Tensor

import airgraph
from airgraph import scope
from airgraph.runtime.cpu import assemble, beside


def _row() -> dict[str, Any]:
    (row,) = report()["graphs"]
    found: dict[str, Any] = row
    return found


@pytest.fixture(autouse=True)
def _four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "_cores", lambda: 4)


@torch.no_grad()
@native
@pytest.mark.parametrize(("intra_op", "threads"), [(1, 2), (2, 1)])
def test_one_stream_has_all_threads_where_that_is_sooner(
    intra_op: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nearly all the work is on one stream, in products that torch's threads share."""
    weight, small, done = torch.randn(512, 512), torch.randn(512, 64), airgraph.Event("done")

    def program(x: Tensor) -> Tensor:
        with scope.stream("side"):
            beside_it = x @ small
            done.record()
        first = x @ weight @ weight @ weight
        done.wait()
        return first.sum() + beside_it.sum()

    x, kept = torch.randn(64, 512), torch.get_num_threads()
    torch.set_num_threads(intra_op)
    try:
        torch.testing.assert_close(torch.compile(program, backend="airgraph", fullgraph=True)(x), program(x))
    finally:
        torch.set_num_threads(kept)
    assert (_row()["streams"], _row()["threads"]) == (2, threads)
    reason = _row()["threads_reason"]
    if threads == 2:
        assert reason == ""
    else:
        assert re.fullmatch(r"estimated .* us beside one another, .* one after another with 2 threads for .*", reason)


@torch.no_grad()
@native
@pytest.mark.parametrize(("tier", "threads"), [("own", 1), ("prepared", 2)])
def test_kernels_that_share_their_work_on_one_stream_only(
    tier: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two equal streams: torch's products have eight of sixteen threads on each, our own kernels one."""
    monkeypatch.setattr(beside, "_cores", lambda: 16)
    decide = beside.beside_one_another

    def with_all_by(recording: Any, max_streams: int | None, tiers: list[str]) -> Any:
        return decide(recording, max_streams, [tier] * len(tiers))

    monkeypatch.setattr(assemble, "beside_one_another", with_all_by)
    left, right, done = torch.randn(512, 512), torch.randn(512, 512), airgraph.Event("done")

    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        with scope.stream("side"):
            side = x @ right @ right @ right
            done.record()
        main = x @ left @ left @ left
        done.wait()
        return main, side

    x, kept = torch.randn(4, 512), torch.get_num_threads()
    call = torch.compile(program, backend="airgraph", fullgraph=True)
    torch.set_num_threads(16)
    try:
        call(x)
    finally:
        torch.set_num_threads(kept)
    assert (_row()["streams"], _row()["threads"]) == (2, threads)


@torch.no_grad()
def test_inline_where_it_would_bring_nothing() -> None:
    done = airgraph.Event("done")

    def tiny(x: Tensor) -> Tensor:
        with scope.stream("side"):
            beside = x * 2
            done.record()
        main = x + 1
        done.wait()
        return main + beside

    x = torch.randn(4)
    assert torch.equal(torch.compile(tiny, backend="airgraph", fullgraph=True)(x), tiny(x))
    assert (_row()["streams"], _row()["threads"]) == (2, 1)
    reason = _row()["threads_reason"]
    assert re.fullmatch(r"estimated [\d.]+ us beside one another, [\d.]+ us one after another", reason)
    shown = " ".join(str(airgraph.explain()).split())
    assert f"{_row()['name']} {_row()['key']}: 2 streams one after another: {reason}" in shown


@torch.no_grad()
@pytest.mark.parametrize(
    ("options", "cores", "reason"),
    [({"max_streams": 0}, 4, "max_streams=0"), ({}, 1, "this process may use one processor")],
)
def test_one_thread_has_its_reason(
    options: dict[str, Any], cores: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "_cores", lambda: cores)
    done = airgraph.Event("done")

    def program(x: Tensor) -> Tensor:
        with scope.stream("side"):
            beside_it = x @ x
            done.record()
        main = x @ x.t()
        done.wait()
        return main + beside_it

    x = torch.randn(64, 64)
    torch.compile(program, backend="airgraph", fullgraph=True, options=options)(x)
    assert (_row()["threads"], _row()["threads_reason"]) == (1, reason)


@torch.no_grad()
@native
@pytest.mark.parametrize(("most", "cores", "threads"), [(None, 2, 2), (None, 4, 4), (1, 4, 2), (2, 4, 3), (9, 4, 6)])
def test_workers_are_as_many_as_cores_or_max_streams_leave(
    most: int | None, cores: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "_cores", lambda: cores)
    monkeypatch.setattr(beside, "_LEAST_GAIN_NS", float("-inf"))

    def program(x: Tensor) -> Tensor:
        results = [x @ x]
        for number in range(5):
            with scope.stream(str(number)):
                done = airgraph.Event(f"done {number}")
                results.append(x @ x.t() + number)
                done.record()
            done.wait()
        return torch.stack(results).sum(0)

    x = torch.randn(64, 64)
    call = torch.compile(program, backend="airgraph", fullgraph=True, options={"max_streams": most})
    torch.testing.assert_close(call(x), program(x))
    assert (_row()["streams"], _row()["threads"]) == (6, threads)


@torch.no_grad()
def test_one_stream_needs_no_reason() -> None:
    torch.compile(lambda x: x * 2 + 1, backend="airgraph")(torch.randn(4))
    assert (_row()["streams"], _row()["threads"], _row()["threads_reason"]) == (1, 1, "")
