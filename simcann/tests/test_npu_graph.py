# SPDX-License-Identifier: Apache-2.0
"""Captures, replays and failures as torch_npu's users see them. Every test leaves the process usable."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def usable_afterwards() -> Iterator[None]:
    yield
    assert (torch.ones(3, device="npu") * 2).cpu().tolist() == [2, 2, 2]
    graph = torch.npu.NPUGraph()
    source = torch.zeros(3, device="npu")
    with torch.npu.graph(graph):
        result = source + 1
    source.fill_(4)
    graph.replay()
    assert result.cpu().tolist() == [5, 5, 5]


def test_capture_does_not_execute_and_replay_does() -> None:
    total = torch.zeros(4, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        total.add_(1)
    assert total.cpu().tolist() == [0, 0, 0, 0]
    for count in range(1, 4):
        graph.replay()
        assert total.cpu().tolist() == [count] * 4


def test_replays_are_in_order_with_the_stream() -> None:
    source = torch.zeros(4, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        result = source * 2
    results = []
    for value in range(10):
        source.fill_(value)
        graph.replay()
        results.append(result.clone())
    assert [int(each[0]) for each in results] == [2 * value for value in range(10)]


def test_streams_and_events_order_eager_work() -> None:
    side = torch.npu.Stream()
    start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
    value = torch.zeros(4, device="npu")
    start.record()
    for count in range(1, 21):
        value.add_(1)
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            seen = value.clone()
        torch.npu.current_stream().wait_stream(side)
        assert seen.cpu().tolist() == [count] * 4
    end.record()
    end.synchronize()
    assert end.query()
    assert start.elapsed_time(end) > 0


def copy_from_pageable_memory(_: torch.Tensor) -> None:
    torch.ones(4).to("npu", non_blocking=True)


FORBIDDEN: dict[str, tuple[Callable[[torch.Tensor], object], str]] = {
    "synchronize stream": (lambda x: torch.npu.current_stream().synchronize(), "synchronising"),
    "synchronize device": (lambda x: torch.npu.synchronize(), "synchronising the device"),
    "item": (lambda x: x[0].item(), "synchronising"),
    "query stream": (lambda x: torch.npu.current_stream().query(), "querying"),
    "pageable copy": (copy_from_pageable_memory, "pageable"),
}


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_call_that_a_capture_forbids_is_named(mode: str, name: str) -> None:
    call, named = FORBIDDEN[name]
    x = torch.ones(4, device="npu")
    torch.npu.synchronize()
    with (
        pytest.raises(RuntimeError, match="capture was invalidated") as caught,
        torch.npu.graph(torch.npu.NPUGraph(), capture_error_mode=mode),
    ):
        y = x + 1
        call(y)
    # torch_npu raises at the call, and again when it ends the capture.
    messages = f"{caught.value} {caught.value.__context__}"
    assert named in messages


def test_a_missing_operator_in_a_capture_is_refused_by_torch_npu() -> None:
    x = torch.ones(2, 2, device="npu")
    with (
        pytest.raises(RuntimeError, match=r"Cannot run aclop operators during NPU graph capture.*Qr"),
        torch.npu.graph(torch.npu.NPUGraph()),
    ):
        torch.linalg.qr(x)


def test_a_stream_that_is_not_joined_is_named() -> None:
    x = torch.ones(4, device="npu")
    side = torch.npu.Stream()
    with (
        pytest.raises(RuntimeError, match=r"aclnnMuls.* is not waited for") as caught,
        torch.npu.graph(torch.npu.NPUGraph()),
    ):
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            x.mul(3)
    assert "107025" in str(caught.value)


def test_an_event_from_before_the_capture_is_refused() -> None:
    event = torch.npu.Event()
    event.record()
    with (
        pytest.raises(RuntimeError, match="outside of the capture"),
        torch.npu.graph(torch.npu.NPUGraph()),
    ):
        torch.npu.current_stream().wait_event(event)


def test_a_task_group_is_updated_while_a_replay_waits_for_it() -> None:
    x = torch.ones(4, device="npu")
    updates = torch.npu.Stream()
    ready = torch.npu.ExternalEvent()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        stream = torch.npu.current_stream()
        ready.wait(stream)
        ready.reset(stream)
        torch.npu.graph_task_group_begin(stream)
        scaled = torch.add(x, x, alpha=2)
        group = torch.npu.graph_task_group_end(stream)
        result = scaled * 1
    for alpha in (2, 5, 7):
        graph.replay()
        with torch.npu.stream(updates):
            torch.npu.graph_task_update_begin(updates, group)
            torch.add(x, x, alpha=alpha, out=scaled)
            torch.npu.graph_task_update_end(updates)
            ready.record(updates)
        torch.npu.synchronize()
        assert result.cpu().tolist() == [1 + alpha] * 4


def test_an_update_of_another_length_is_refused() -> None:
    x = torch.ones(4, device="npu")
    updates = torch.npu.Stream()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        stream = torch.npu.current_stream()
        torch.npu.graph_task_group_begin(stream)
        x.mul(2)
        group = torch.npu.graph_task_group_end(stream)
    torch.npu.graph_task_update_begin(updates, group)
    with pytest.raises(RuntimeError, match="has 1 tasks, the update gave 0"):
        torch.npu.graph_task_update_end(updates)


def test_a_missing_operator_names_itself_and_the_process_goes_on() -> None:
    with pytest.raises(RuntimeError, match=r"no such operator: Qr.*simcann/opapi"):
        torch.linalg.qr(torch.ones(2, 2, device="npu"))


def test_a_failing_kernel_is_named_and_stays_until_the_device_is_reset() -> None:
    torch.nn.functional.embedding(torch.tensor([9], device="npu"), torch.ones(4, 4, device="npu"))
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"kernel 'aclnnEmbedding' failed.*out of range"):
            torch.npu.synchronize()
    torch.npu.stop_device(0)
    torch.npu.synchronize()
