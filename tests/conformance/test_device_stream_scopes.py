"""Streams and events within a model: results are eager's, however they nest and whatever is written."""

import gc
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from doors import both_doors, through
from four_tensors import FourTensors
from reports import report
from torch import Tensor, nn

import airgraph
from airgraph import ops, scope
from airgraph.errors import StreamError
from airgraph.runtime.registry import runtime_for


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.done = airgraph.Event("done")
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        with scope.stream("outer"):
            for number, layer in enumerate(self.layers):
                with scope.stream("inner" if number % 2 else "default"):
                    x = layer(x).relu()
            self.done.record()
        self.done.wait()
        return x + 1


class Cache(nn.Module):
    """Writes its argument on a side stream, and reads it on the main one."""

    def __init__(self) -> None:
        super().__init__()
        self.written = airgraph.Event("written")

    def forward(self, cache: Tensor, x: Tensor) -> Tensor:
        before = cache.sum()
        with scope.stream("writes"):
            cache[1:2].copy_(x)
            cache.mul_(2)
            self.written.record()
        self.written.wait()
        return cache * before


def _arguments(model: nn.Module, device: str, rows: int = 4) -> list[Tensor]:
    if isinstance(model, FourTensors):
        return [torch.randn(4, 4, device=device) for _ in range(4)]
    if isinstance(model, Nested):
        return [torch.randn(rows, 4, device=device)]
    return [torch.randn(rows, 4, device=device), torch.randn(1, 4, device=device)]


@torch.no_grad()
@both_doors
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("make", [FourTensors, Nested, Cache])
@pytest.mark.sampled
def test_results_are_eagers(
    make: Callable[[], nn.Module], dynamic: bool, door: str, device: str, tmp_path: Path
) -> None:
    model, twin = make().to(device).eval(), make().to(device).eval()
    twin.load_state_dict(model.state_dict())
    call = through(door, model.forward, tmp_path, dynamic=dynamic, strict=True, fullgraph=True)
    for rows in (4, 4, 6, 4):
        given = _arguments(model, device, rows)
        expected_given = [each.clone() for each in given]
        torch.testing.assert_close(call(*given), twin(*expected_given))
        torch.testing.assert_close(given, expected_given)
        torch.testing.assert_close(dict(model.named_buffers()), dict(twin.named_buffers()))
    assert {row["state"] for row in report()["graphs"]} == {"captured"}


@torch.no_grad()
def test_they_trace_without_a_break(device: str) -> None:
    model = Nested().to(device).eval()
    x = torch.randn(2, 4, device=device)
    torch.testing.assert_close(torch.compile(model, backend="airgraph", fullgraph=True)(x), model(x))


@torch.no_grad()
def test_a_cached_graph_keeps_them(device: str, tmp_path: Path) -> None:
    for traces in (1, 0):
        model = FourTensors(device)
        call = through("cached", model.forward, tmp_path, strict=True)
        given = _arguments(model, device)
        torch.testing.assert_close(call(*given), FourTensors(device)(*given))
        assert call.counts().traces == traces
    (file,) = call.files
    text = airgraph.inference.readable_cache(file, print_output=False)
    lines = text.splitlines()
    marks = [re.search(r"airgraph\.(\w+)\.default\(.*?'(\w+)'\)", line) for line in lines]
    assert [" ".join(each.groups()) for each in marks if each is not None] == [
        "record_event 66", "wait_event 66", "record_stream 1", "record_event 77", "wait_event 77",
    ]  # fmt: skip
    on_streams = [re.findall(r"aten\..*, stream (\d)", line) for line in lines]
    assert [stream for found in on_streams for stream in found] == ["1", "2"]


class NeverRecorded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.event = airgraph.Event("never")

    def forward(self, x: Tensor) -> Tensor:
        with scope.stream("1"):
            self.event.wait()
            return x + 1


@torch.no_grad()
@both_doors
def test_a_wait_for_what_is_never_recorded_is_refused(door: str, device: str, tmp_path: Path) -> None:
    call = through(door, NeverRecorded().forward, tmp_path, strict=door == "cached")
    line = NeverRecorded.forward.__code__.co_firstlineno + 2
    with pytest.raises(StreamError, match=rf"'never' is waited for at .*{Path(__file__).name}:{line}"):
        call(torch.ones(3, device=device))
    # Others are served as ever.
    other = through(door, Nested().to(device).forward, tmp_path)
    assert other(torch.ones(2, 4, device=device)).shape == (2, 4)


class RecordedLater(NeverRecorded):
    def forward(self, x: Tensor) -> Tensor:
        with scope.stream("1"):
            self.event.wait()
            y = x + 1
        self.event.record()
        return y


class RecordedInAnotherGraph(NeverRecorded):
    def forward(self, x: Tensor) -> Tensor:
        y = x + 1
        self.event.record()
        torch._dynamo.graph_break()
        self.event.wait()
        return y * 2


@torch.no_grad()
@pytest.mark.parametrize(("make", "line"), [(NeverRecorded, 2), (RecordedLater, 2), (RecordedInAnotherGraph, 4)])
def test_a_record_elsewhere_is_none_before_the_wait(make: type[NeverRecorded], line: int, device: str) -> None:
    model = make()
    # Outside of all graphs, which counts for none.
    model.event.record()
    line += make.forward.__code__.co_firstlineno
    with pytest.raises(
        StreamError,
        match=rf"'never' is waited for at .*{Path(__file__).name}:{line} and not recorded before it in this graph",
    ):
        torch.compile(model, backend="airgraph")(torch.ones(3, device=device))


class Layers(nn.Module):
    """Each layer has an event of its own, and all these have one tag."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.done = [airgraph.Event("done") for _ in range(3)]

    def forward(self, x: Tensor) -> Tensor:
        for layer, done in zip(self.layers, self.done, strict=True):
            with scope.stream("side"):
                beside = layer(x)
                done.record()
            done.wait()
            x = x + beside
            done.record()
            with scope.stream("side"):
                done.wait()
        return x


@torch.no_grad()
def test_equal_tags_of_events_are_one_event(device: str, recwarn: pytest.WarningsRecorder) -> None:
    model = Layers().to(device).eval()
    x = torch.randn(2, 4, device=device)
    call = torch.compile(model, backend="airgraph", fullgraph=True, options={"stream_check": "error"})
    for _ in range(3):
        torch.testing.assert_close(call(x), model(x))


@torch.no_grad()
def test_two_models_may_use_one_tag(device: str) -> None:
    models = [FourTensors(device), FourTensors(device)]
    calls = [torch.compile(model, backend="airgraph", fullgraph=True) for model in models]
    for _ in range(3):
        for call in calls:
            given = _arguments(models[0], device)
            torch.testing.assert_close(call(*given)[:2], FourTensors(device)(*given)[:2])


class Tokens(nn.Module):
    """Waits for tensors and tokens: two streams wait for one token, one stream for a tensor and a token."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first = x + 1
        token = ops.record()
        with scope.stream("a"):
            ops.wait([token])
            left = first * 2
        with scope.stream("b"):
            ops.wait([token])
            right = (first * 3).view(-1)
            done = ops.record()
        ops.wait([left, done])
        ops.wait([x])
        return left + 1, right.sum()


@torch.no_grad()
@both_doors
def test_tokens_and_tensors_are_waited_for(
    door: str, device: str, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    model = Tokens()
    for _ in range(2):
        call = through(door, model.forward, tmp_path, strict=True)
        x = torch.randn(3, 4, device=device)
        torch.testing.assert_close(call(x), model(x))
    assert {row["streams"] for row in report()["graphs"]} == {3} and report()["counters"]["eager_calls"] == 0
    # No race is left, and so no wait is inserted.
    assert not [each for each in recwarn if "orders the two" in str(each.message)]


@torch.no_grad()
@both_doors
def test_a_token_may_be_handed_out(door: str, device: str, tmp_path: Path) -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, ops.record()

    call = through(door, program, tmp_path)
    for _ in range(2):
        result, token = call(torch.ones(3, device=device))
        assert result.tolist() == [2, 2, 2] and token.shape == (0,)


def test_what_cannot_be_waited_for_is_refused() -> None:
    with pytest.raises(ValueError, match="an empty list"):
        ops.wait([])
    with pytest.raises(StreamError, match="expected a list of tensors and tokens, got Tensor"):
        ops.wait(torch.ones(2))  # type: ignore[arg-type]
    with pytest.raises(StreamError, match="expected tensors and tokens, got str"):
        ops.wait(["66"])  # type: ignore[list-item]


def test_marks_within_vmap_are_about_the_whole_batch(device: str) -> None:
    def row(v: Tensor) -> Tensor:
        with scope.stream("side"):
            doubled = v * 2
        ops.wait([doubled])
        ops.record_stream(doubled, "side")
        return doubled + 1

    x = torch.randn(3, 4, device=device)
    for call in (torch.vmap(row), torch.compile(torch.vmap(row), backend="airgraph")):
        torch.testing.assert_close(call(x), x * 2 + 1)


class ManyStreams(nn.Module):
    """Each stream takes what the one before has made, and the default stream takes all."""

    def __init__(self) -> None:
        super().__init__()
        self.made = [airgraph.Event(f"made {number}") for number in range(6)]

    def forward(self, x: Tensor) -> Tensor:
        results = [x]
        for number, event in enumerate(self.made):
            with scope.stream(f"side {number}"):
                if number:
                    self.made[number - 1].wait()
                results.append((results[-1] @ x).sin())
                event.record()
        self.made[-1].wait()
        return torch.stack(results).sum(0)


@torch.no_grad()
@pytest.mark.parametrize("most", [0, 1, 2, 4, None])
def test_many_tags_share_few_streams(most: int | None, device: str) -> None:
    model = ManyStreams()
    call = torch.compile(model, backend="airgraph", fullgraph=True, options={"max_streams": most})
    for _ in range(10):
        x = torch.randn(8, 8, device=device)
        torch.testing.assert_close(call(x), model(x))
    (row,) = report()["graphs"]
    assert row["state"] == "captured"
    if device != "cpu":
        assert row["streams"] == 1 + (6 if most is None else most)


@torch.no_grad()
def test_graphs_by_turns_make_no_new_streams_and_events(device: str) -> None:
    if device == "cpu":
        pytest.skip("streams of the CPU are no objects of a device")
    runtime = runtime_for(device)
    calls = [torch.compile(FourTensors(device), backend="airgraph", fullgraph=True) for _ in range(2)]
    given = _arguments(FourTensors(), device)
    counts = set()
    for _ in range(5):
        for call in calls:
            call(*given)
        counts.add((len(runtime._streams), len(runtime.event_pool()._free)))
    assert len(counts) == 1


@torch.no_grad()
def test_events_of_graphs_that_are_gone_are_used_again(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if device == "cpu":
        pytest.skip("events of the CPU are no objects of a device")
    made = []
    pool = runtime_for(device).event_pool()
    make = pool._make
    monkeypatch.setattr(pool, "_make", lambda: made.append(make()) or made[-1])
    for _ in range(3):
        gc.collect()
        before = len(made)
        call = torch.compile(FourTensors(device), backend="airgraph", fullgraph=True)
        call(*_arguments(FourTensors(), device))
        del call
        torch._dynamo.reset()
        airgraph.reset()
    assert len(made) == before


class Scaled(nn.Module):
    """Computes with a number on both streams, which torch has done by operators that it puts in itself."""

    def __init__(self) -> None:
        super().__init__()
        self.scaled = airgraph.Event("scaled")
        self.factor = 0.5

    def forward(self, x: Tensor, number: float) -> Tensor:
        with scope.stream("side"):
            side = x.sum(0) * number * self.factor
            self.scaled.record()
        main = x.sum(1) * number
        self.scaled.wait()
        return side + main


@torch.no_grad()
@both_doors
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.sampled
def test_what_computes_with_a_number_stays_in_its_block(
    door: str, dynamic: bool | None, device: str, tmp_path: Path
) -> None:
    model = Scaled()
    call = through(door, model.forward, tmp_path, dynamic=dynamic, stream_check="error")
    # The second and third number are told to torch as one that varies.
    for number in (0.5, 1.5, 2.5):
        x = torch.randn(6, 6, device=device)
        torch.testing.assert_close(call(x, number), model(x, number))
    assert {(row["state"], row["streams"]) for row in report()["graphs"]} == {("captured", 2)}
