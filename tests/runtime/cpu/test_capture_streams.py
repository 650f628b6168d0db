"""Streams in captures by hand: forked and joined by events, as on CUDA; tags; races."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable

import numpy
import pytest
import torch
from torch import Tensor

import airgraph
from airgraph import scope
from airgraph.cpu import CPUGraph, Event, Stream, current_stream, graph, stream
from airgraph.errors import CaptureError, StreamError
from airgraph.runtime.cpu import beside


@pytest.fixture(autouse=True)
def _beside_whatever_it_brings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "_LEAST_GAIN_NS", float("-inf"))
    monkeypatch.setattr(beside, "_cores", lambda: 4)


def _by_wait_stream(x: Tensor, side: Stream) -> Tensor:
    side.wait_stream(current_stream())
    with stream(side):
        beside = (x * 2).exp()
    main = (x + 1).sin()
    current_stream().wait_stream(side)
    return main + beside


def _by_events(x: Tensor, side: Stream) -> Tensor:
    forked, joined = Event(), Event()
    forked.record()
    side.wait_event(forked)
    with stream(side):
        beside = (x * 2).exp()
        joined.record()
    main = (x + 1).sin()
    joined.wait()
    return main + beside


def _by_tags(x: Tensor, side: Stream) -> Tensor:
    done = airgraph.Event("done")
    with scope.stream("side"):
        beside = (x * 2).exp()
        done.record()
    main = (x + 1).sin()
    done.wait()
    return main + beside


def _by_tokens(x: Tensor, side: Stream) -> Tensor:
    token = airgraph.ops.record()
    with scope.stream("side"):
        airgraph.ops.wait([token])
        beside = (x * 2).exp()
    main = (x + 1).sin()
    airgraph.ops.wait([beside, main])
    return main + beside


@torch.no_grad()
@pytest.mark.parametrize("program", [_by_wait_stream, _by_events, _by_tags, _by_tokens])
def test_streams_are_replayed_beside_one_another(program: Callable[[Tensor, Stream], Tensor]) -> None:
    x, side, g = torch.randn(64), Stream(), CPUGraph()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with graph(g):
            result = program(x, side)
    for _ in range(200):
        x.normal_()
        g.replay()
        assert torch.equal(result, (x + 1).sin() + (x * 2).exp())
    # Eager work is synchronous.
    assert torch.equal(program(x, side), result)


@torch.no_grad()
def test_a_tagged_stream_is_joined_by_itself() -> None:
    x, g = torch.randn(8), CPUGraph()
    with graph(g):
        with scope.stream("side"):
            result = (x * 2).exp()
    g.replay()
    assert torch.equal(result, (x * 2).exp())


@torch.no_grad()
def test_a_stream_that_was_not_forked_is_refused() -> None:
    x, side, g = torch.randn(8), Stream(), CPUGraph()
    with pytest.raises(
        CaptureError, match=rf"{re.escape(__file__)}:\d+ is on a stream that is not part of the capture"
    ):
        with graph(g), stream(side):
            x + 1
    with graph(g):
        result = x + 1
    g.replay()
    assert torch.equal(result, x + 1)


@torch.no_grad()
def test_an_event_from_before_the_capture_forks_nothing() -> None:
    x, side, g, before = torch.randn(8), Stream(), CPUGraph(), Event()
    before.record()
    with pytest.raises(CaptureError, match="not part of the capture"):
        with graph(g):
            side.wait_event(before)
            with stream(side):
                x + 1


@torch.no_grad()
def test_a_stream_that_is_not_joined_is_refused() -> None:
    x, side, g = torch.randn(8), Stream(), CPUGraph()
    with pytest.raises(CaptureError, match="unjoined stream.*Record an event there, and wait for it"):
        with graph(g):
            side.wait_stream(current_stream())
            with stream(side):
                y = x + 1
            x.sin()
    del y
    with graph(g):
        result = _by_events(x, side)
    g.replay()
    assert torch.equal(result, (x + 1).sin() + (x * 2).exp())


@torch.no_grad()
def test_joining_by_way_of_another_stream_is_enough() -> None:
    x, first, second, g = torch.randn(8), Stream(), Stream(), CPUGraph()
    with graph(g):
        first.wait_stream(current_stream())
        with stream(first):
            made = x + 1
        second.wait_stream(first)
        with stream(second):
            result = made * 2
        current_stream().wait_stream(second)
    g.replay()
    assert torch.equal(result, (x + 1) * 2)


@torch.no_grad()
def test_races_are_found_and_ended() -> None:
    x, side, g = torch.randn(64), Stream(), CPUGraph()
    with pytest.warns(
        UserWarning, match=r"aten.add.Tensor on the stream of the capture .*aten.mul.Tensor on another stream"
    ):
        with graph(g):
            side.wait_stream(current_stream())
            made = x + 1
            with stream(side):
                result = made * 2
            current_stream().wait_stream(side)
    for _ in range(100):
        x.normal_()
        g.replay()
        assert torch.equal(result, (x + 1) * 2)


@torch.no_grad()
def test_parts_of_one_tensor_do_not_race() -> None:
    x, side, g, target = torch.randn(8, 4), Stream(), CPUGraph(), torch.zeros(8, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with graph(g):
            side.wait_stream(current_stream())
            with stream(side):
                target[:4].copy_(x[:4] * 2)
            target[4:].copy_(x[4:] * 3)
            current_stream().wait_stream(side)
    g.replay()
    assert torch.equal(target, torch.cat([x[:4] * 2, x[4:] * 3]))


@torch.no_grad()
def test_an_event_is_of_the_capture_that_recorded_it() -> None:
    x, side, event = torch.randn(8), Stream(), Event()
    first, second = CPUGraph(), CPUGraph()
    with graph(first):
        x + 1
        event.record()
    with pytest.raises(CaptureError, match="not part of the capture"):
        with graph(second):
            side.wait_event(event)
            with stream(side):
                x + 1


@torch.no_grad()
def test_a_race_in_memory_that_two_tensors_share_from_outside() -> None:
    array = numpy.ones(64, dtype=numpy.float32)
    written, read = torch.from_numpy(array), torch.from_numpy(array)
    side, g = Stream(), CPUGraph()
    with pytest.warns(UserWarning, match=r"add_.*mul.*use the same memory, and nothing orders the two"), graph(g):
        side.wait_stream(current_stream())
        with stream(side):
            written.add_(1)
        result = read * 2
        current_stream().wait_stream(side)
    for number in range(200):
        g.replay()
        assert (result == 2 * (number + 2)).all()


@torch.no_grad()
def test_a_race_for_statistics_that_no_schema_tells_of() -> None:
    mean, variance, x, side, g = torch.zeros(4), torch.ones(4), torch.randn(8, 4), Stream(), CPUGraph()
    with pytest.warns(UserWarning, match=r"batch_norm.*use the same memory, and nothing orders the two"), graph(g):
        side.wait_stream(current_stream())
        with stream(side):
            torch.nn.functional.batch_norm(x, mean, variance, training=True)
        torch.nn.functional.batch_norm(x, mean, variance, training=True)
        current_stream().wait_stream(side)


@torch.no_grad()
def test_streams_are_forked_and_joined_within_a_block_of_a_tag() -> None:
    x, side, g = torch.randn(64), Stream(), CPUGraph()
    with graph(g):
        origin = current_stream()
        with scope.stream("tag"):
            side.wait_stream(origin)
            tagged = x.sin()
        with stream(side):
            beside = x * 2
        token = airgraph.ops.record()
        other = Stream()
        with stream(other):
            airgraph.ops.wait([token])
            more = x + 1
        with scope.stream("tag"):
            origin.wait_stream(side)
            origin.wait_stream(other)
        result = beside + more
    for _ in range(20):
        x.normal_()
        g.replay()
        assert torch.equal(result, x * 2 + (x + 1)) and torch.equal(tagged, x.sin())


def test_a_wait_for_a_tag_that_the_capture_never_recorded_is_refused() -> None:
    airgraph.Event("outside").record()
    x, capture = torch.ones(3), CPUGraph()
    line = test_a_wait_for_a_tag_that_the_capture_never_recorded_is_refused.__code__.co_firstlineno + 6
    with pytest.raises(StreamError, match=rf"'outside' is waited for at .*test_capture_streams.py:{line}"):
        with graph(capture):
            airgraph.Event("outside").wait()
    with graph(capture):
        y = x + 1
    capture.replay()
    assert y.tolist() == [2, 2, 2]


@pytest.mark.parametrize("tag", ["", 7, None, "half of a pair: \ud800"])
def test_a_tag_that_cannot_be_one_is_refused(tag: object) -> None:
    for use in (
        airgraph.Event,
        lambda tag: scope.stream(tag).__enter__(),
        lambda tag: airgraph.ops.record_stream(torch.ones(1), tag),
    ):
        with pytest.raises(StreamError, match="tag: expected a text"):
            use(tag)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("error:airgraph")
def test_the_innermost_block_counts_be_it_of_a_tag_or_a_stream() -> None:
    x, side, capture = torch.randn(8, 8), Stream(), CPUGraph()
    with graph(capture):
        side.wait_stream(current_stream())
        with scope.stream("a"), stream(side):
            on_side = x.sin()
            with scope.stream("default"):
                on_main = x.cos()
            done = side.record_event()
        with stream(side), scope.stream("b"):
            on_b = x.exp()
            airgraph.Event("b").record()
        current_stream().wait_event(done)
        airgraph.Event("b").wait()
        result = on_side + on_main + on_b
    capture.replay()
    torch.testing.assert_close(result, x.sin() + x.cos() + x.exp())


_PARTS = {
    "rows": (numpy.s_[:4], numpy.s_[4:], False),
    "columns": (numpy.s_[:, :4], numpy.s_[:, 4:], False),
    "even and odd rows": (numpy.s_[::2], numpy.s_[1::2], False),
    "a column and a row": (numpy.s_[:, 3], numpy.s_[5], True),
    "columns that meet": (numpy.s_[:, :5], numpy.s_[:, 4:], True),
}


@pytest.mark.parametrize("name", _PARTS)
def test_parts_of_a_tensor_race_where_they_share_bytes(name: str) -> None:
    left, right, races = _PARTS[name]
    a, side, capture = torch.randn(8, 8), Stream(), CPUGraph()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with graph(capture):
            made = torch.zeros(8, 8)
            side.wait_stream(current_stream())
            with stream(side):
                made[left].copy_(a[left])
            made[right].copy_(a[right])
            current_stream().wait_stream(side)
            result = made * 1
    assert any("use the same memory" in str(each.message) for each in caught) is races
    capture.replay()
    expected = torch.zeros(8, 8)
    expected[left], expected[right] = a[left], a[right]
    assert torch.equal(result, expected)
