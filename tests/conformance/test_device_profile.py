"""A profile tells when each operator of a graph runs, on which stream and after what, and changes nothing."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from profiled_model import Beside, Chained
from torch import Tensor, nn

import airgraph
from airgraph.runtime.cpu import beside


@pytest.fixture(autouse=True)
def _beside_whatever_it_brings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(beside, "_LEAST_GAIN_NS", float("-inf"))
    monkeypatch.setattr(beside, "_cores", lambda: 2)
    with torch.no_grad():
        yield


_fails = False


@torch.library.custom_op("airgraph_tests::fails_when_told", mutates_args=())
def fails_when_told(x: Tensor) -> Tensor:
    if _fails:
        raise RuntimeError("as it was told")
    return x + 1


@fails_when_told.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@pytest.fixture(params=[True, False], ids=["copied", "in place"])
def called(request: pytest.FixtureRequest, device: str) -> tuple[Callable[..., Any], nn.Module, list[Tensor]]:
    """A compiled model, the model, and arguments that it has been called with."""
    model = Beside().to(device)
    call = torch.compile(model, backend="airgraph", fullgraph=True, options={"clone_input": request.param})
    rows = torch.tensor([1, 3], device=device)
    given = [torch.randn(4, 16, device=device), torch.zeros(3, device=device), rows]
    torch.manual_seed(3)
    call(*given)
    return call, model, given


def _timeline() -> Any:
    (timeline,) = airgraph.explain(profile=True).timelines or ()
    return timeline


def test_it_has_each_operator_on_its_stream(device: str, called: tuple[Any, ...]) -> None:
    spans = _timeline().spans
    assert len(spans) == airgraph.explain().graphs[0]["nodes"]
    names = {span.operator.partition(".")[0] for span in spans}
    assert {"aten::sin", "aten::embedding"} <= names or device == "cpu"
    assert {span.stream for span in spans} == {"default", "side"}
    assert all(0 <= span.begin_ns <= span.end_ns for span in spans) and max(span.end_ns for span in spans) > 0
    assert min(span.begin_ns for span in spans) == 0
    waits = [(place, other) for place, span in enumerate(spans) for other in span.waits]
    assert {(spans[place].stream, spans[other].stream) for place, other in waits} == {
        ("side", "default"),
        ("default", "side"),
    }
    assert all(spans[other].end_ns <= spans[place].begin_ns for place, other in waits)
    assert all("profiled_model.py" in span.source for span in spans)
    assert {span.nbytes for span in spans} >= {2 * 16 * 4, 3 * 4}


def test_a_wait_is_seen_through_a_stream_without_work(device: str, tmp_path: Path) -> None:
    call = torch.compile(Chained(), backend="airgraph", fullgraph=True, options={"stream_check": "error"})
    call(torch.rand(4, device=device))
    report = airgraph.explain(profile=True)
    events = json.loads(report.save(tmp_path / "trace.json").read_text())["traceEvents"]
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    bars = [(each["name"], tracks[each["tid"]]) for each in events if each["ph"] == "X"]
    assert bars == [("aten::sin", "stream a"), ("aten::cos", "stream default")]
    arrows = [(each["ph"], tracks[each["tid"]]) for each in events if each["ph"] in ("s", "f")]
    assert arrows == [("s", "stream a"), ("f", "stream default")]


def test_it_changes_nothing(device: str, called: tuple[Any, ...]) -> None:
    call, _, given = called
    torch.manual_seed(3)
    result = call(*given)
    kept = result.clone()
    module = getattr(torch, device, None)
    generator = module.get_rng_state() if device != "cpu" else torch.get_rng_state()
    arguments = [each.clone() for each in given]
    before = airgraph.explain().to_dict()
    _timeline()
    assert airgraph.explain().to_dict() == before
    assert torch.equal(result, kept) and all(map(torch.equal, given, arguments))
    assert torch.equal(module.get_rng_state() if device != "cpu" else torch.get_rng_state(), generator)
    torch.manual_seed(3)
    assert torch.equal(call(*given), kept)


def test_arguments_that_are_gone_are_stood_in_for(device: str, called: tuple[Any, ...]) -> None:
    call, model, given = called
    given.clear()
    weight = model.side.weight.detach().clone()
    model.side.weight.untyped_storage().resize_(0)
    assert len(_timeline().spans) == airgraph.explain().graphs[0]["nodes"]
    model.side.weight.data = weight
    rows = torch.tensor([1, 3], device=device)
    x, state = torch.randn(4, 16, device=device), torch.zeros(3, device=device)
    torch.manual_seed(3)
    ours = call(x, state, rows)
    torch.manual_seed(3)
    torch.testing.assert_close(ours, model(x, torch.zeros(3, device=device), rows))


def test_an_operator_that_fails_is_named_and_the_graph_stays(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: Tensor) -> Tensor:
        return fails_when_told(x @ x) * 2

    call = torch.compile(program, backend="airgraph", fullgraph=True)
    x = torch.rand(8, 8, device=device)
    expected = program(x)
    torch.testing.assert_close(call(x), expected)
    with monkeypatch.context() as told:
        told.setitem(globals(), "_fails", True)
        with pytest.warns(UserWarning, match=r"has no profile: .*as it was told"):
            assert not airgraph.explain(profile=True).timelines
    torch.testing.assert_close(call(x), expected)
    assert len(_timeline().spans) >= 2
