"""TorchAir's blocks, events and operators that order streams mean what airgraph's mean, through both doors."""

from pathlib import Path

import pytest
import torch
from doors import both_doors
from facade_doors import through
from reports import report
from torch import Tensor, nn

from airgraph import torchair
from airgraph.errors import OptionError, StreamError


class Two(nn.Module):
    """Two streams, ordered by events, by tensors and by a token."""

    def __init__(self) -> None:
        super().__init__()
        self.forked = torchair.ops.npu_create_tagged_event("forked")
        self.joined = torchair.ops.npu_create_tagged_event("joined")

    def forward(self, x: Tensor) -> Tensor:
        first = x + 1
        torchair.ops.npu_tagged_event_record(self.forked)
        with torchair.scope.npu_stream_switch("side", 3):
            torchair.ops.npu_tagged_event_wait(self.forked)
            beside = first * 2
            torchair.ops.npu_record_tagged_stream(first, "side")
            torchair.ops.npu_tagged_event_record(self.joined)
            token = torchair.ops.record()
        main = first * 3
        torchair.ops.npu_tagged_event_wait(self.joined)
        torchair.ops.wait([token])
        return torchair.scope.npu_wait_tensor(main, beside) + beside


@torch.no_grad()
@both_doors
def test_streams_events_and_tokens_are_captured_and_run_eagerly(door: str, device: str, tmp_path: Path) -> None:
    model = Two()
    call = through(door, model.forward, tmp_path)
    for rows in (3, 3, 5):
        x = torch.randn(rows, 4, device=device)
        torch.testing.assert_close(call(x), (x + 1) * 5)
        torch.testing.assert_close(model(x), (x + 1) * 5)
    assert {(row["state"], row["streams"]) for row in report()["graphs"]} == {("captured", 2)}


def test_a_tag_of_a_live_event_is_refused_until_the_event_is_gone() -> None:
    event = torchair.ops.npu_create_tagged_event("66")
    with pytest.raises(OptionError, match="got '66' of an event that is alive"):
        torchair.ops.npu_create_tagged_event("66")
    cycle = [event]
    cycle.append(cycle)  # type: ignore[arg-type]
    del event, cycle
    torchair.ops.npu_create_tagged_event("66")


class MadeInside(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        event = torchair.ops.npu_create_tagged_event("made inside")
        with torchair.scope.npu_stream_switch("side"):
            beside = x * 2
            torchair.ops.npu_tagged_event_record(event)
        torchair.ops.npu_tagged_event_wait(event)
        return beside + 1


@torch.no_grad()
@both_doors
def test_an_event_may_be_made_within_a_model(door: str, device: str, tmp_path: Path) -> None:
    call = through(door, MadeInside().forward, tmp_path)
    for _ in range(2):
        assert call(torch.ones(2, device=device)).tolist() == [3.0] * 2
    assert MadeInside()(torch.ones(2, device=device)).tolist() == [3.0] * 2


@pytest.mark.parametrize("given", ["66", None, object()])
def test_an_event_that_was_never_created_is_an_error(given: object) -> None:
    for use in (torchair.ops.npu_tagged_event_wait, torchair.ops.npu_tagged_event_record):
        with pytest.raises(OptionError, match="event: expected one of npu_create_tagged_event, got"):
            use(given)  # type: ignore[arg-type]


class WaitsForNothing(nn.Module):
    def __init__(self, tag: str) -> None:
        super().__init__()
        self.event = torchair.ops.npu_create_tagged_event(tag)

    def forward(self, x: Tensor) -> Tensor:
        torchair.ops.npu_tagged_event_wait(self.event)
        return x + 1


@torch.no_grad()
@both_doors
def test_a_wait_for_what_is_never_recorded_is_an_error(door: str, device: str, tmp_path: Path) -> None:
    tag = f"never recorded, {door}"
    with pytest.raises(StreamError, match=tag):
        through(door, WaitsForNothing(tag).forward, tmp_path)(torch.ones(2, device=device))


class WithRequests(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torchair.scope.limit_core_num(4, 8), torchair.scope.super_kernel("name", "options"):
            with torchair.scope.npu_stream_switch("default", enable_inner_parallel=False):
                return x * 2 + 1


@torch.no_grad()
@both_doors
def test_requests_that_are_not_heeded_are_said_once_and_make_no_streams(door: str, device: str, tmp_path: Path) -> None:
    call = through(door, WithRequests().forward, tmp_path)
    x = torch.randn(3, device=device)
    with pytest.warns(UserWarning, match="has no effect") as warned:
        for _ in range(2):
            torch.testing.assert_close(call(x), x * 2 + 1)
    said = sorted(str(each.message).split(" has no effect")[0] for each in warned if "no effect" in str(each.message))
    assert said == ["airgraph: scope.limit_core_num", "airgraph: scope.super_kernel"]
    assert [(row["state"], row["streams"]) for row in report()["graphs"]] == [("captured", 1)]


def test_a_request_in_eager_code_is_said_once() -> None:
    with pytest.warns(UserWarning, match="scope.super_kernel has no effect") as warned:
        for _ in range(2):
            with torchair.scope.super_kernel("name"):
                torch.ones(2)
    assert len(warned) == 1


@pytest.mark.parametrize("given", [(-1, 2), (2, True), ("4", 4)])
def test_what_is_no_number_of_cores_is_refused(given: tuple[int, int]) -> None:
    with pytest.raises(OptionError, match="expected a number of cores, got"):
        torchair.scope.limit_core_num(*given)


def test_an_empty_wait_is_refused() -> None:
    with pytest.raises(OptionError, match="got an empty list"):
        torchair.ops.wait([])
