"""The report has the promised form and explains every decision."""

import torch

import airgraph


@torch.no_grad()
def test_report_has_the_promised_keys() -> None:
    compiled = torch.compile(lambda x: x.exp().sum(), backend="airgraph")
    compiled(torch.randn(100))
    report = airgraph.explain()
    data = report.to_dict()
    assert set(data) == {"graphs", "pools", "counters", "passes"}
    (graph,) = data["graphs"]
    assert set(graph) == {
        "name", "state", "reason", "key", "nodes", "streams", "pool", "arena_nbytes", "copied_nbytes",
        "capture_ms", "replays",
    }  # fmt: skip
    assert graph["state"] == "captured" and graph["nodes"] == 2 and graph["streams"] == 1 and graph["replays"] == 1
    assert graph["copied_nbytes"] == 400 and graph["arena_nbytes"] >= 400 and graph["capture_ms"] > 0
    (pool,) = data["pools"]
    assert set(pool) == {
        "id", "device", "nbytes", "graphs", "arena_nbytes", "inputs_nbytes", "outputs_nbytes", "saved_nbytes",
        "copied_nbytes",
    }  # fmt: skip
    assert pool["id"] == graph["pool"] and pool["graphs"] == 1 and pool["device"] == "cpu"
    assert pool["inputs_nbytes"] == pool["copied_nbytes"] == 400 and pool["outputs_nbytes"] == 4
    assert pool["nbytes"] == graph["arena_nbytes"] and pool["saved_nbytes"] == 0
    assert data["counters"] == {"captures": 1, "recaptures": 0, "replays": 1, "eager_calls": 0}
    text = str(report)
    assert graph["name"] in text and "captures: 1" in text


def test_an_empty_report_prints() -> None:
    assert "captures: 0" in str(airgraph.explain())
