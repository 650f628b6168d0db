"""Torch's own streams and events within a model mean what tagged ones mean."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from doors import both_doors, through
from reports import report
from torch import Tensor, nn

import airgraph
from airgraph.errors import StreamError


@pytest.fixture
def native(device: str) -> str:
    if device == "cpu":
        pytest.skip("of the CPU torch has no events, and streams that run all in one order")
    return device


class MadeOutside(nn.Module):
    """Streams and events of the device's own module, which the model holds."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.module = getattr(torch, device)
        self.side = self.module.Stream()
        self.forked, self.joined = self.module.Event(), self.module.Event()

    def forward(self, x: Tensor) -> Tensor:
        first = x + 1
        self.forked.record()
        with self.module.stream(self.side):
            self.forked.wait()
            beside = first * 2
            self.joined.record()
        main = first * 3
        self.joined.wait()
        return main + beside


class MadeInside(nn.Module):
    """torch.Stream and torch.Event, made within the graph; one stream waits for another."""

    def __init__(self, device: str) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        side, forked = torch.Stream(), torch.Event()
        first = x + 1
        forked.record()
        with side:
            side.wait_event(forked)
            beside = first * 2
        main = first * 3
        torch.accelerator.current_stream().wait_stream(side)
        return main + beside


class Recorded(nn.Module):
    """Events that streams make and wait for, and a tensor that a stream keeps."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.side = torch.Stream(device)

    def forward(self, x: Tensor) -> Tensor:
        first = x + 1
        forked = torch.accelerator.current_stream().record_event()
        with self.side:
            self.side.wait_event(forked)
            beside = first * 2
            first.record_stream(self.side)
            joined = self.side.record_event()
        main = first * 3
        torch.accelerator.current_stream().wait_event(joined)
        return main + beside


class SetAndSetBack(nn.Module):
    """The current stream is another one for a while, without a block."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.side = torch.Stream(device)

    def forward(self, x: Tensor) -> Tensor:
        current = torch.accelerator.current_stream()
        first = x + 1
        self.side.wait_stream(current)
        torch.accelerator.set_stream(self.side)
        beside = first * 2
        torch.accelerator.set_stream(current)
        main = first * 3
        current.wait_stream(self.side)
        return main + beside


@torch.no_grad()
@both_doors
@pytest.mark.parametrize("make", [MadeOutside, MadeInside, Recorded, SetAndSetBack])
def test_results_are_right(
    make: Callable[[str], nn.Module], door: str, native: str, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    model = make(native)
    call = through(door, model.forward, tmp_path)
    for rows in (3, 3, 5):
        x = torch.randn(rows, 4, device=native)
        # Not eager's own run: by the rules of the devices' allocators it would have to record its streams.
        torch.testing.assert_close(call(x), (x + 1) * 3 + (x + 1) * 2)
    assert {(row["state"], row["streams"]) for row in report()["graphs"]} == {("captured", 2)}
    assert not [each for each in recwarn if "orders the two" in str(each.message)]


@torch.no_grad()
def test_a_race_is_found(native: str) -> None:
    side = torch.Stream()

    def program(x: Tensor) -> Tensor:
        first = x + 1
        with side:
            beside = first * 2
        return beside + first

    call = torch.compile(program, backend="airgraph", fullgraph=True, options={"stream_check": "error"})
    with pytest.raises(
        StreamError, match=r"aten.add.Tensor on the default stream .* writes what aten.mul.Tensor on stream"
    ):
        call(torch.ones(3, device=native))


@torch.no_grad()
def test_an_event_from_outside_the_graph_is_refused(native: str) -> None:
    event = torch.Event()

    def program(x: Tensor) -> Tensor:
        event.wait()
        return x + 1

    event.record()
    with pytest.raises(StreamError, match="is waited for at .* and not recorded before it in this graph"):
        torch.compile(program, backend="airgraph", fullgraph=True)(torch.ones(3, device=native))


def _host_waits_for(waited_for: str, side: torch.Stream, module: Any) -> Callable[[Tensor], Tensor]:
    def program(x: Tensor) -> Tensor:
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            beside = x * 2
            done = side.record_event()
        if waited_for == "stream":
            side.synchronize()
        elif waited_for == "event":
            done.synchronize()
        else:
            module.synchronize()
        return beside + 1

    return program


@torch.no_grad()
@pytest.mark.parametrize("waited_for", ["stream", "event", "device"])
def test_a_graph_in_which_the_host_waits_runs_eagerly(native: str, waited_for: str) -> None:
    program = _host_waits_for(waited_for, torch.Stream(native), torch.get_device_module(native))
    x = torch.randn(3, device=native)
    torch.testing.assert_close(torch.compile(program, backend="airgraph")(x), x * 2 + 1)
    (row,) = airgraph.explain().to_dict()["graphs"]
    assert row["state"] == "skipped" and "the host waits for a stream" in row["reason"], row


@torch.no_grad()
@both_doors
def test_a_function_may_end_on_another_stream(door: str, native: str, tmp_path: Path) -> None:
    module = torch.get_device_module(native)
    side, before = module.Stream(), module.current_stream()

    def program(x: Tensor) -> Tensor:
        first = x + 1
        first.record_stream(side)
        side.wait_stream(module.current_stream())
        module.set_stream(side)
        return first * 2

    call = through(door, program, tmp_path)
    x = torch.randn(3, device=native)
    for _ in range(3):
        try:
            ours, ends_on = call(x), module.current_stream()
            torch.testing.assert_close(ours, (x + 1) * 2)
        finally:
            before.wait_stream(side)
            module.set_stream(before)
        assert ends_on == side
    (row,) = report()["graphs"][-1:]
    assert row["state"] == "skipped" and row["reason"] == "it leaves another stream as the current one"


@torch.no_grad()
@both_doors
def test_it_may_have_blocks_of_streams_before(door: str, native: str, tmp_path: Path) -> None:
    """Each waits for the one before, at the first call too."""
    module = torch.get_device_module(native)
    first, second, before = module.Stream(), module.Stream(), module.current_stream()

    def program(x: Tensor) -> Tensor:
        first.wait_stream(module.current_stream())
        with first:
            y = x * 2
        y.record_stream(second)
        second.wait_stream(first)
        module.set_stream(stream=second)
        return y + 1

    call = through(door, program, tmp_path)
    for rows in (1 << 16, 1 << 16, 1 << 10):
        x = torch.ones(rows, device=native)
        for _ in range(20):
            x = x * 1.5 - 0.5
        try:
            ours, ends_on = call(x), module.current_stream()
            torch.testing.assert_close(ours, torch.full_like(ours, 3.0))
        finally:
            before.wait_stream(second)
            module.set_stream(before)
        assert ends_on == second


@torch.no_grad()
def test_a_function_that_only_sets_a_stream_sets_it(native: str, tmp_path: Path) -> None:
    module = torch.get_device_module(native)
    side, before = module.Stream(), module.current_stream()

    def program(x: Tensor) -> Tensor:
        module.set_stream(side)
        return x

    call = through("cached", program, tmp_path)
    try:
        call(torch.randn(3, device=native))
        assert module.current_stream() == side
    finally:
        module.set_stream(before)


@torch.no_grad()
@both_doors
def test_a_function_may_ask_whether_an_event_is_over(door: str, native: str, tmp_path: Path) -> None:
    module = torch.get_device_module(native)
    event = module.Event()

    def program(x: Tensor) -> Tensor:
        first = x + 1
        event.record()
        # Whatever it says.
        return first * 2 if event.query() else (first + first)

    call = through(door, program, tmp_path)
    x = torch.randn(3, device=native)
    for _ in range(3):
        torch.testing.assert_close(call(x), (x + 1) * 2)


@torch.no_grad()
@both_doors
def test_streams_of_the_cpu_are_one_order(door: str, tmp_path: Path) -> None:
    """torch has them, and runs all at once."""

    def program(x: Tensor) -> Tensor:
        with torch.Stream(device="cpu"):
            beside = x * 2
        return beside + x

    call, x = through(door, program, tmp_path), torch.randn(3)
    for _ in range(2):
        torch.testing.assert_close(call(x), program(x))


@torch.no_grad()
@pytest.mark.skipif(torch.accelerator.is_available(), reason="is about a torch that has the CPU alone")
@pytest.mark.parametrize("backend", ["eager", "airgraph"])
def test_events_of_the_cpu_are_refused_by_torch_itself(backend: str) -> None:
    """So docs/streams.md says, with the messages."""

    def program(x: Tensor) -> Tensor:
        event = torch.Event(device="cpu")
        event.record()
        event.wait()
        return x + 1

    with pytest.raises(RuntimeError, match="cpu backend doesn't support events"):
        program(torch.ones(2))
    with pytest.raises(IndexError, match="deque index out of range"):
        torch.compile(program, backend=backend)(torch.ones(2))


class StreamInAScope(nn.Module):
    """Its operator is on torch's stream, which is in order with all else; on the tag's nothing would be."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.side = torch.Stream(device)

    def forward(self, x: Tensor) -> Tensor:
        first = (x + 1).exp().log()
        self.side.wait_stream(torch.accelerator.current_stream())
        with airgraph.scope.stream("a"), self.side:
            beside = first * 2
        torch.accelerator.current_stream().wait_stream(self.side)
        return beside + 0


class ScopeInAStream(nn.Module):
    """Its operator is on the tag's stream, which an event orders."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.side = torch.Stream(device)
        self.forked, self.joined = airgraph.Event("forked"), airgraph.Event("joined")

    def forward(self, x: Tensor) -> Tensor:
        first = (x + 1).exp().log()
        self.forked.record()
        with airgraph.scope.stream("b"), self.side, airgraph.scope.stream("a"):
            self.forked.wait()
            beside = first * 2
            self.joined.record()
        self.joined.wait()
        return beside + 0


@torch.no_grad()
@pytest.mark.parametrize("kind", [StreamInAScope, ScopeInAStream])
def test_the_innermost_block_counts(kind: Callable[[str], nn.Module], native: str) -> None:
    model = kind(native)
    compiled = torch.compile(model, backend="airgraph", fullgraph=True, options={"stream_check": "error"})
    for call in range(5):
        found = compiled(torch.full((64,), float(call), device=native))
        torch.testing.assert_close(found.cpu(), torch.full((64,), 2.0 * call + 2), rtol=1e-5, atol=0)
