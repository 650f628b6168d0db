"""The report has the promised form and explains every decision."""

import functools
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import airgraph
from airgraph.capture.ledger import ledger

sys.path.insert(0, str(Path(__file__).parents[1] / "cache"))
from cached_functions import cached


@torch.no_grad()
def test_report_has_the_promised_keys() -> None:
    compiled = torch.compile(lambda x: x.exp().sum(), backend="airgraph")
    compiled(torch.randn(100))
    report = airgraph.explain()
    data = report.to_dict()
    assert set(data) == {"graphs", "pools", "counters", "passes", "cached", "products", "packed_nbytes", "graph_breaks"}
    assert data["cached"] == [] and data["products"] == [] and data["packed_nbytes"] == 0
    (graph,) = data["graphs"]
    assert set(graph) == {
        "name", "state", "reason", "key", "nodes", "streams", "threads", "threads_reason", "pool",
        "nbytes", "arena_nbytes", "copied_nbytes", "capture_ms", "replays",
    }  # fmt: skip
    assert graph["state"] == "captured" and graph["nodes"] == 2 and graph["streams"] == 1 and graph["replays"] == 1
    assert graph["copied_nbytes"] == 400 and graph["nbytes"] >= 400 and graph["capture_ms"] > 0
    (pool,) = data["pools"]
    assert set(pool) == {
        "id", "device", "nbytes", "graphs", "arena_nbytes", "inputs_nbytes", "outputs_nbytes", "saved_nbytes",
        "copied_nbytes",
    }  # fmt: skip
    assert pool["id"] == graph["pool"] and pool["graphs"] == 1 and pool["device"] == "cpu"
    assert pool["inputs_nbytes"] == pool["copied_nbytes"] == 400 and pool["outputs_nbytes"] == 4
    assert pool["nbytes"] == graph["nbytes"] and pool["saved_nbytes"] == 0
    # One word, one meaning: the arena is the intermediates of both.
    assert graph["arena_nbytes"] == pool["arena_nbytes"] == pool["nbytes"] - 404
    assert data["counters"] == {"captures": 1, "recaptures": 0, "replays": 1, "eager_calls": 0}
    text = str(report)
    assert graph["name"] in text and "captures: 1" in text


class Broken(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        torch._dynamo.graph_break()
        return x + 1


class Stepped(torch.nn.Module):
    def step(self, x: torch.Tensor, times: int = 2) -> torch.Tensor:
        return x * times + 1


class Named(Stepped):
    pass


@torch.no_grad()
def test_the_report_lists_graph_breaks_with_line_and_reason() -> None:
    torch._dynamo.reset()

    def broken(x: torch.Tensor) -> torch.Tensor:
        print(end="")
        return x[x > 0].sum() * 2

    torch.compile(broken, backend="airgraph")(torch.ones(3))
    report = airgraph.explain()
    first = broken.__code__.co_firstlineno
    found = [(row["source"], row["count"]) for row in report.to_dict()["graph_breaks"]]
    assert found == [(f"{__file__}:{first + 1}", 1), (f"{__file__}:{first + 2}", 1)]
    reasons = [row["reason"] for row in report.graph_breaks]
    assert "`print`" in reasons[0] and "aten.nonzero" in reasons[1]
    text = "".join(str(report).split())
    assert f"{Path(__file__).name}:{first + 2},1x:Dynamicshapeoperator" in text
    torch._dynamo.reset()
    assert airgraph.explain().graph_breaks == ()


def halved(x: torch.Tensor) -> torch.Tensor:
    return x / 2


def _wrapped(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Decorated(nn.Module):
    @_wrapped
    def first(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @_wrapped
    def second(self, x: torch.Tensor) -> torch.Tensor:
        return x + 2


@torch.no_grad()
def test_graphs_of_decorated_methods_have_the_methods_names() -> None:
    model = Decorated()
    for each in (model.second, model.first):
        torch.compile(each, backend="airgraph")(torch.ones(3))
    names = [row["name"] for row in airgraph.explain().to_dict()["graphs"]]
    assert names == ["Decorated.second #1", "Decorated.first #1"]


@torch.no_grad()
def test_graphs_are_called_as_their_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Numbers go on within a process, and other tests compile the same functions of torch.
    monkeypatch.setattr(ledger, "_names", Counter())
    model = Named()
    torch.compile(Broken(), backend="airgraph")(torch.ones(3))
    torch.compile(model.step, backend="airgraph")(torch.ones(3))
    torch.compile(halved, backend="airgraph")(torch.ones(3))
    cached(model.step, tmp_path)(torch.ones(3))
    cached(halved, tmp_path)(torch.ones(3))
    own = torch.nn.Linear(3, 3)
    for each in (own, own.forward, torch.nn.functional.relu, torch.exp):
        torch.compile(each, backend="airgraph")(torch.ones(3))
    broken = Broken.forward.__code__.co_firstlineno + 2
    assert [row["name"] for row in airgraph.explain().to_dict()["graphs"]] == [
        "Broken.forward #1",
        f"forward from line {broken} #1",
        "Named.step #1",
        "halved #1",
        "Named.step #2",
        "halved #2",
        "Linear.forward #1",
        "Linear.forward #2",
        "relu #1",
        "exp #1",
    ]


def test_what_calls_of_a_cached_function_came_to(tmp_path: Path) -> None:
    model = Stepped()
    call = cached(model.step, tmp_path, strict=False)
    for width in (3, 3, 4, 5):
        call(torch.ones(width))
    call(torch.ones(3), 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            call(torch.ones(3), times=OwnTimes())
    (row,) = airgraph.explain().to_dict()["cached"]
    name = f"{__name__}.Stepped.step"
    refusals = row.pop("refusals")
    assert row == {"name": name, "hits": 4, "misses": 3, "files_read": 0, "traces": 1, "unwritten": {}}
    assert sum(refusals.values()) == 2 and all(isinstance(reason, str) and reason for reason in refusals)
    again = cached(model.step, tmp_path)
    again(torch.ones(3))
    again(torch.ones(3))
    rows = airgraph.explain().to_dict()["cached"]
    assert sorted(each["files_read"] for each in rows) == [0, 1]
    text = str(airgraph.explain())
    assert "functions with a compile cache" in text and "misses" in text
    airgraph.reset()
    assert airgraph.explain().to_dict()["cached"] == []
    again(torch.ones(3))
    (row,) = airgraph.explain().to_dict()["cached"]
    assert (row["hits"], row["misses"]) == (1, 0)


def test_every_call_of_a_cached_function_is_a_hit_or_a_miss(tmp_path: Path) -> None:
    def printing(x: torch.Tensor) -> torch.Tensor:
        print(end="")
        return x * 2

    def adding(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.add_(y)

    base = torch.zeros(4)
    uncacheable, overlapping = cached(printing, tmp_path, strict=False), cached(adding, tmp_path, strict=False)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(5):
            uncacheable(torch.ones(3))
        for other in (torch.ones(4), torch.ones(4), *[base[:4]] * 5):
            overlapping(base, other)
    assert (uncacheable.counts().hits, uncacheable.counts().misses) == (0, 5)
    assert (overlapping.counts().hits, overlapping.counts().misses) == (1, 6)


class OwnTimes(float):
    pass


def test_an_empty_report_prints() -> None:
    assert "captures: 0" in str(airgraph.explain())
