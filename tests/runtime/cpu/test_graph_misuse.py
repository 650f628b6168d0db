"""A graph by hand that is used wrongly, or whose block fails, says so, and all stays usable."""

import gc
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import airgraph
from airgraph.cpu import CPUGraph, Stream, current_stream, graph, graph_pool_handle, stream
from airgraph.errors import CaptureError, ReplayError, StreamError


def _sum(g: CPUGraph, x: torch.Tensor) -> torch.Tensor:
    with graph(g):
        return x + 1


_READS: dict[str, Callable[[torch.Tensor], object]] = {
    "item": lambda t: t.sum().item(),
    "tolist": lambda t: t.tolist(),
    "print": lambda t: str(t),
    "format": lambda t: f"{t.sum()}",
    "bool": lambda t: bool(t.sum() > 0),
    "int": lambda t: int(t.sum()),
    "float": lambda t: float(t.sum()),
    "index": lambda t: [1, 2, 3][t.sum().long()],
    "numpy": lambda t: t.numpy(),
    "asarray": lambda t: np.asarray(t),
    "if": lambda t: 1 if t.sum() > 0 else 2,
    "nonzero": lambda t: t.nonzero(),
    "mask": lambda t: t[t > 0],
    "equal": lambda t: torch.equal(t, t),
    "dlpack": lambda t: torch.from_dlpack(t.detach()),
}


@pytest.mark.parametrize(
    ("misuse", "rule"),
    [
        (lambda g: g.capture_end(), "without capture_begin"),
        (lambda g: g.replay(), "replay before capture_end"),
        (lambda g: g.pool(), "pool before capture_begin"),
        (lambda g: g.capture_begin(pool=3), "expected a handle from graph_pool_handle"),
        (lambda g: g.capture_begin(capture_error_mode="loose"), "capture_error_mode: expected one of"),
        (lambda g: graph(3), "expected an airgraph.cpu.CPUGraph, got int"),
    ],
)
def test_misuse_outside_a_capture_names_the_rule(misuse: Callable[[CPUGraph], object], rule: str) -> None:
    with pytest.raises(CaptureError, match=rule):
        misuse(CPUGraph())


@pytest.mark.parametrize(
    ("misuse", "rule"),
    [
        (lambda g: g.capture_begin(), "capture_begin was called twice"),
        (lambda g: CPUGraph().capture_begin(), "captures do not nest"),
        (lambda g: g.reset(), "reset while capturing"),
        (lambda g: g.replay(), "replay before capture_end"),
    ],
)
def test_misuse_during_a_capture_names_the_rule_and_the_capture_goes_on(
    misuse: Callable[[CPUGraph], object], rule: str
) -> None:
    g, x = CPUGraph(), torch.ones(2)
    g.capture_begin()
    with pytest.raises(CaptureError, match=rule):
        misuse(g)
    y = x + 1
    g.capture_end()
    g.replay()
    assert torch.equal(y, torch.full((2,), 2.0))


def test_begin_on_a_captured_graph() -> None:
    g = CPUGraph()
    _sum(g, torch.ones(2))
    with pytest.raises(CaptureError, match="holds a capture already"):
        g.capture_begin()


def test_end_on_another_stream() -> None:
    g = CPUGraph()
    g.capture_begin()
    with stream(Stream()):
        with pytest.raises(CaptureError, match="same stream it began on"):
            g.capture_end()
    g.capture_end()


def test_end_on_another_thread() -> None:
    g, errors = CPUGraph(), []

    def end() -> None:
        try:
            g.capture_end()
        except CaptureError as error:
            errors.append(str(error))

    g.capture_begin()
    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    g.capture_end()
    assert "on the thread that capture_begin" in errors[0]


@pytest.mark.parametrize("read", _READS)
def test_reading_a_captured_value_raises_and_everything_is_usable_afterwards(read: str) -> None:
    g, x, pool = CPUGraph(), torch.zeros(3), graph_pool_handle()
    before = current_stream()
    with pytest.raises(CaptureError):
        with graph(g, pool=pool):
            _READS[read](x + 1)
    assert current_stream() is before
    assert torch.equal(x + 1, torch.ones(3)), "calls execute again"
    with graph(g, pool=pool):
        y = x + 1
    g.replay()
    assert torch.equal(y, torch.ones(3))
    assert g.pool() is pool


# What PyTorch makes of a sequence it reads below its dispatcher, and memory from outside can be read.
_SEQUENCES: dict[str, Callable[[torch.Tensor], object]] = {
    "tensor": lambda t: torch.tensor([t[0], 5.0]),
    "tensor by name": lambda t: torch.tensor(data=((t[0], t[1]), (1, 2))),
    "tensor of a tuple of its elements": lambda t: torch.tensor(tuple(t)),
    "tensor of parameters": lambda t: torch.tensor(nn.ParameterList([nn.Parameter(t[0], False)])),
    "as_tensor": lambda t: torch.as_tensor([t[0]]),
    "asarray": lambda t: torch.asarray([t[0]]),
    "new": lambda t: t.new([t[0]]),
    "new_tensor": lambda t: t.new_tensor([t[0]]),
    "FloatTensor": lambda t: torch.FloatTensor([t[0], 5.0]),
    "index": lambda t: t[[t[0], t[1]],],
    "nested index": lambda t: t.view(1, 4)[:, [[t[0]], [t[1]]]],
    "written index": lambda t: t.view(1, 4).__setitem__((slice(None), [t[0], 1]), 3),
    "sizes": lambda t: torch.tensor_split(t, t[1:2])[0],
}


@pytest.mark.parametrize("read", _SEQUENCES)
def test_reading_a_value_from_outside_raises(read: str) -> None:
    x, g = torch.arange(4), CPUGraph()
    with pytest.raises(CaptureError, match="test_graph_misuse"):
        with graph(g):
            _SEQUENCES[read](x)
    _SEQUENCES[read](x)


def test_sequences_without_tensors_are_captured() -> None:
    x, rows = torch.arange(4.0), torch.tensor([1, 0])
    g = CPUGraph()
    with graph(g):
        y = x[[0, 1]] + torch.tensor([[1.0, 2.0]]) + x[(rows,)] + torch.stack([x[0], x[1]])
    x.add_(1)
    g.replay()
    assert torch.equal(y, x[[0, 1]] + torch.tensor([[1.0, 2.0]]) + x[(rows,)] + torch.stack([x[0], x[1]]))


def test_a_swallowed_error_invalidates_the_capture() -> None:
    g, x = CPUGraph(), torch.ones(3)
    g.capture_begin()
    with pytest.raises(CaptureError, match="item"):
        x.sum().item()
    with pytest.raises(CaptureError, match="invalidated"):
        g.capture_end()
    g.capture_begin()
    y = x + 1
    g.capture_end()
    g.replay()
    assert torch.equal(y, x + 1)


def test_an_error_of_the_block_passes_through() -> None:
    g, x = CPUGraph(), torch.ones(3)
    with pytest.raises(RuntimeError, match="broadcast"):
        with graph(g):
            x + torch.ones(4)
    assert torch.equal(x + x, torch.full((3,), 2.0))


def test_a_closed_pool_takes_no_new_graph() -> None:
    g, x = CPUGraph(), torch.ones(3)
    pool = graph_pool_handle()
    pool.close()
    with pytest.raises(CaptureError, match="is closed. Open another by graph_pool_handle"):
        g.capture_begin(pool=pool)
    with graph(g):
        y = x + 1
    g.replay()
    assert torch.equal(y, x + 1)


def test_a_failing_kernel_names_operator_and_line_and_the_graph_stays_usable() -> None:
    weight, index = torch.randn(4, 2), torch.tensor([1, 2])
    g = CPUGraph()
    with torch.no_grad(), graph(g):
        y = nn.functional.embedding(index, weight)
    index.fill_(9)
    with pytest.raises(ReplayError, match=r"aten::embedding at .*test_graph_misuse.py:\d+ failed in replay: .*out of"):
        g.replay()
    index.fill_(3)
    g.replay()
    assert torch.equal(y, weight[[3, 3]])


def test_a_replay_within_its_own_replay_raises() -> None:
    g = CPUGraph()

    @torch.library.custom_op("airgraph_test::replay_again", mutates_args=())
    def replay_again(x: torch.Tensor) -> torch.Tensor:
        g.replay()
        return x.clone()

    @replay_again.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    with torch.no_grad(), graph(g):
        replay_again(torch.ones(2))
    for _ in range(2):
        with pytest.raises(ReplayError, match="replay of a CPUGraph was called by an operator"):
            g.replay()


def test_a_graph_lost_while_capturing_gives_its_thread_back() -> None:
    def lose() -> None:
        CPUGraph().capture_begin()

    lose()
    gc.collect()
    assert torch.equal(torch.ones(2) + 1, torch.full((2,), 2.0))
    y = _sum(g := CPUGraph(), torch.ones(2))
    g.replay()
    assert torch.equal(y, torch.full((2,), 2.0))


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("fails", ["capture_end", "abort"])
def test_a_block_whose_end_is_interrupted_is_left(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the exception of a signal handler, which may keep the end from beginning."""
    original, calls = getattr(CPUGraph, fails), []

    def interrupted(self: CPUGraph, *args: object) -> None:
        calls.append(self)
        if len(calls) == 1:
            raise Interrupted
        original(self, *args)

    monkeypatch.setattr(CPUGraph, fails, interrupted)
    g, x, on = CPUGraph(), torch.ones(3), Stream()
    with pytest.raises(Interrupted), stream(on), graph(g):
        x + 1
        if fails == "abort":
            raise ValueError
    assert torch.equal(x + 1, torch.full((3,), 2.0)) and current_stream() is not on
    with graph(g):
        y = x * 3
    g.replay()
    assert torch.equal(y, torch.full((3,), 3.0))


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: airgraph.cpu.Stream().wait_stream("a"),
        lambda: airgraph.cpu.Stream().wait_event(None),
        lambda: airgraph.cpu.Stream().wait_event(airgraph.Event("tagged")),
        lambda: airgraph.cpu.Stream().record_event("a"),
        lambda: airgraph.cpu.Event().wait("x"),
        lambda: airgraph.cpu.Event().record("x"),
        lambda: airgraph.cpu.stream("a"),
    ],
)
def test_what_is_no_stream_or_event_is_named(misuse: Callable[[], object]) -> None:
    """Within a capture, which goes on, and outside."""
    with pytest.raises(StreamError, match=r"expected an airgraph\.cpu\.(Stream|Event).*, got "):
        misuse()
    captured = airgraph.cpu.CPUGraph()
    x = torch.ones(3)
    with airgraph.cpu.graph(captured):
        with pytest.raises(StreamError, match=r"expected an airgraph\.cpu\.(Stream|Event).*, got "):
            misuse()
        y = x * 2
    captured.replay()
    assert torch.equal(y, torch.full((3,), 2.0))


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), "cond at .*: higher-order operators are not"),
        (
            lambda x: torch.quantize_per_tensor(x, 0.1, 3, torch.qint8),
            "quantize_per_tensor at .*: a tensor is quantized",
        ),
        (
            lambda x: torch.quantize_per_channel(x, torch.ones(3), torch.zeros(3), 0, torch.qint8),
            "quantize_per_channel at .*: a tensor is quantized",
        ),
    ],
    ids=["higher order", "quantized", "quantized by channel"],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_is_never_captured_is_refused_in_the_capture(call: Callable[[torch.Tensor], object], rule: str) -> None:
    g, x = CPUGraph(), torch.ones(3)
    with pytest.raises(CaptureError, match=rule):
        with graph(g):
            call(x)
    with graph(g):
        y = x + 1
    g.replay()
    assert torch.equal(y, x + 1)
