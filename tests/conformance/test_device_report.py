"""What runs eagerly says why, once; the report and the runtime's figures are the same on every device."""

import warnings

import pytest
import torch

import airgraph
from airgraph.runtime.registry import device_types, runtime_for

_FIELDS = {"name", "state", "reason", "key", "nodes", "streams", "pool", "nbytes", "arena_nbytes", "copied_nbytes"}
_FIELDS |= {"capture_ms", "replays"}


@torch.library.custom_op("airgraph_conformance::reads_on_host", mutates_args=())
def reads_on_host(x: torch.Tensor) -> torch.Tensor:
    """Calls that a device cannot capture, hidden from the compiler."""
    return x * float(x.sum().item())


@reads_on_host.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _report() -> dict:
    return airgraph.explain().to_dict()


@torch.no_grad()
def test_an_operator_whose_shape_depends_on_data(device: str) -> None:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(lambda x: torch.masked_select(x, x > 0) * 2, backend="airgraph", fullgraph=True)
        x = torch.tensor([1.0, -2.0, 3.0], device=device)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                assert compiled(x).tolist() == [2.0, 6.0]
    ours = [str(w.message) for w in caught if "eagerly" in str(w.message)]
    assert len(ours) == 1 and "aten::masked_select" in ours[0] and "test_device_report.py:" in ours[0]
    assert _report()["counters"] == {"captures": 0, "recaptures": 0, "replays": 0, "eager_calls": 3}


@torch.no_grad()
def test_a_host_read_within_an_operator(device: str) -> None:
    """The CPU replays it as any other operator; where it cannot be captured, it is named and everything goes on."""
    compiled = torch.compile(lambda x: torch.ops.airgraph_conformance.reads_on_host(x) + 1, backend="airgraph")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for value in (1.0, 2.0, 3.0):
            x = torch.full((2,), value, device=device)
            assert compiled(x).tolist() == [2 * value * value + 1] * 2
    ours = [str(w.message) for w in caught if "eagerly" in str(w.message)]
    if device == "cpu":
        assert ours == []
    else:
        assert len(ours) == 1
        assert "airgraph_conformance::reads_on_host" in ours[0] and "test_device_report.py:" in ours[0]
        assert "a capture does not allow" in ours[0]
    after = torch.compile(lambda x: x * 3, backend="airgraph", fullgraph=True)
    for value in (1.0, 2.0):
        assert after(torch.full((2,), value, device=device)).tolist() == [3 * value] * 2
    assert _report()["graphs"][-1]["state"] == "captured"


@torch.no_grad()
def test_another_device_in_the_graph(device: str) -> None:
    if device == "cpu":
        pytest.skip("the CPU is the other device")
    compiled = torch.compile(lambda x: (x * 2).cpu() + 1, backend="airgraph")
    with pytest.warns(UserWarning, match=r"lies on cpu"):
        assert compiled(torch.ones(2, device=device)).tolist() == [3.0, 3.0]


@torch.no_grad()
def test_the_report(device: str) -> None:
    compiled = torch.compile(lambda x: (x * 2).exp(), backend="airgraph", fullgraph=True)
    for _ in range(3):
        compiled(torch.ones(4, device=device))
    report = _report()
    (graph,) = report["graphs"]
    assert set(graph) >= _FIELDS
    assert graph["state"] == "captured" and graph["replays"] == 3
    assert graph["nodes"] == 2 and graph["streams"] == 1 and graph["copied_nbytes"] == 16
    assert graph["nbytes"] > 0 and graph["capture_ms"] > 0
    (pool,) = report["pools"]
    assert pool["device"].split(":")[0] == device and pool["nbytes"] > 0 and pool["graphs"] == 1
    assert device in str(airgraph.explain())


@torch.no_grad()
def test_reset_forgets_and_captures_anew(device: str) -> None:
    compiled = torch.compile(lambda x: x + 1, backend="airgraph", fullgraph=True)
    held = compiled(torch.ones(4, device=device))
    airgraph.reset()
    assert _report()["graphs"] == [] and _report()["pools"] == []
    assert held.tolist() == [2.0] * 4
    assert compiled(torch.zeros(4, device=device)).tolist() == [1.0] * 4
    assert _report()["counters"]["captures"] == 1


def test_the_runtime(device: str) -> None:
    assert device in device_types()
    runtime = runtime_for(device)
    assert runtime.device_type == device
    assert runtime_for(device) is runtime
    stream, event = runtime.stream("a"), runtime.event("done")
    assert runtime.stream("a") is stream and runtime.stream("b") is not stream
    assert runtime.event("done") is event
    event.record(stream)
    event.wait(runtime.stream("b"))
    event.synchronize()
    runtime.synchronize()
    pool = airgraph.graph_pool_handle(device)
    assert pool.device_type == device and pool.nbytes == 0 and pool.graphs == 0 and not pool.closed
    pool.close()
    assert pool.closed
    assert isinstance(runtime.capabilities.rng_in_graphs, bool)
