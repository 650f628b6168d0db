"""Profiled replays: they disturb nothing, and their pictures show each call, its stream and what it waits for."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from browser import drawn_by_a_browser, needs_a_browser
from profiled_model import Beside
from torch import Tensor, nn

import airgraph
from airgraph.errors import OptionError
from airgraph.runtime.cpu import beside


@pytest.fixture(autouse=True)
def _beside_whatever_it_brings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(beside, "_LEAST_GAIN_NS", float("-inf"))
    monkeypatch.setattr(beside, "_cores", lambda: 2)
    with torch.no_grad():
        yield


def _call(model: nn.Module) -> tuple[Any, tuple[Tensor, ...]]:
    call = torch.compile(model, backend="airgraph", fullgraph=True)
    return call, (torch.randn(4, 16), torch.zeros(3), torch.tensor([1, 3]))


def test_a_profile_changes_nothing() -> None:
    call, given = _call(Beside())
    torch.manual_seed(3)
    result = call(*given)
    kept, generator = result.clone(), torch.get_rng_state()
    before = airgraph.explain().to_dict()
    report = airgraph.explain(profile=True)
    assert report.to_dict() == before
    assert torch.equal(result, kept) and torch.equal(torch.get_rng_state(), generator)
    assert given[1].tolist() == [1, 1, 1]
    torch.manual_seed(3)
    assert torch.equal(call(*given), kept)


def test_arguments_that_are_gone_do_no_harm() -> None:
    model = Beside()
    call, given = _call(model)
    call(*given)
    del given
    model.side.weight.untyped_storage().resize_(0)
    (timeline,) = airgraph.explain(profile=True).timelines or ()
    assert len(timeline.spans) == airgraph.explain().graphs[0]["nodes"]


def test_a_trace_has_each_call_on_its_stream(tmp_path: Path) -> None:
    call, given = _call(Beside())
    call(*given)
    report = airgraph.explain(profile=True)
    written = json.loads(report.save(tmp_path / "trace.json").read_text())
    events = written["traceEvents"]
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert sorted(tracks.values()) == ["stream default", "stream side"]
    calls = [event for event in events if event["ph"] == "X"]
    assert len(calls) == report.graphs[0]["nodes"]
    by_stream = {track: [c["name"] for c in calls if c["tid"] == tid] for tid, track in tracks.items()}
    assert by_stream["stream side"] == ["aten::addmm"]
    (addmm,) = (each for each in calls if each["name"] == "aten::addmm")
    code = Beside.forward.__code__
    line = f"{Path(code.co_filename).name}:{code.co_firstlineno + 5}"
    assert addmm["args"]["line"].endswith(line) and addmm["args"]["bytes"] == 2 * 16 * 4
    assert all(each["dur"] >= 0 and each["ts"] >= 0 for each in calls)
    # An arrow for the fork and one for the join, each from a call to one that begins after that has ended.
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert len(starts) == 2 and starts.keys() == ends.keys()
    for name, start in starts.items():
        assert start["tid"] != ends[name]["tid"] and start["ts"] <= ends[name]["ts"]


@needs_a_browser
def test_the_page_is_drawn_by_a_browser(tmp_path: Path) -> None:
    call, given = _call(Beside())
    call(*given)
    report = airgraph.explain(profile=True)
    page = report.save(tmp_path / "streams.html")
    assert not re.findall(r"<script[^>]+src=|<link ", page.read_text())
    drawn = drawn_by_a_browser(page, tmp_path / "profile")
    assert drawn.count('class="point"') == report.graphs[0]["nodes"]
    assert drawn.count('class="annotation-arrow-g"') == 2
    for word in ("Beside.forward", "side", "default", "µs since the replay began"):
        assert word in drawn, word


def test_a_picture_needs_a_profile(tmp_path: Path) -> None:
    for name in ("trace.json", "streams.html"):
        with pytest.raises(OptionError, match=rf"{name}: this report has no profile. .*explain\(profile=True\)"):
            airgraph.explain().save(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_nothing_captured_gives_an_empty_picture(tmp_path: Path) -> None:
    report = airgraph.explain(profile=True)
    assert json.loads(report.save(tmp_path / "trace.json").read_text())["traceEvents"] == []
    assert "No graph has been profiled" in report.save(tmp_path / "streams.html").read_text()


def test_a_graph_that_fails_has_no_profile() -> None:
    @torch.library.custom_op("airgraph_tests::fails_on_zeros", mutates_args=())
    def fails(x: Tensor) -> Tensor:
        if not x.any():
            raise RuntimeError("zeros")
        return x.clone()

    fails.register_fake(torch.empty_like)
    call = torch.compile(lambda x: fails(x) + 1, backend="airgraph", fullgraph=True)
    x = torch.ones(3)
    call(x)
    with pytest.warns(UserWarning, match=r"has no profile: .*fails_on_zeros.*zeros"):
        assert airgraph.explain(profile=True).timelines == ()
    assert call(x).tolist() == [2, 2, 2]
