"""One forward pass of every architecture equals eager, whatever the batch and the length."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
import zoo

import airgraph

# Dynamo breaks the graph at the loop over the experts that were hit, and captures what lies between.
BROKEN_UP = {"mixtral-loop"}
# AOTAutograd lowers Mamba's matmuls differently from eager: backend="aot_eager" differs in the last bit as well.
WITHIN_TOLERANCE = {"mamba"}
WHOLE = [architecture for name, architecture in zoo.ARCHITECTURES.items() if name not in BROKEN_UP]
# Encoders of each kind of position, and convolutions. What decodes is in test_decode.py, prompts included.
SAMPLE = {("bert", True), ("t5-encoder", False), ("vit", False)}
SHAPES = ((2, 6), (3, 9), (2, 6))


def _forward(architecture: zoo.Architecture) -> Callable[..., torch.Tensor]:
    model = architecture.build()
    options = {"use_cache": False} if "logits" in architecture.output and architecture.name != "vit" else {}

    def forward(**inputs: torch.Tensor) -> torch.Tensor:
        return getattr(model(**inputs, **options), architecture.output)

    return forward


@pytest.mark.parametrize(("architecture", "dynamic"), zoo.static_and_dynamic(WHOLE, SAMPLE))
@torch.no_grad()
def test_forward_equals_eager_and_is_captured_whole(architecture: zoo.Architecture, dynamic: bool) -> None:
    forward = _forward(architecture)
    within_tolerance = architecture.name in WITHIN_TOLERANCE
    backend = airgraph.get_backend({"kernels": "fast" if within_tolerance else "exact"})
    compiled = torch.compile(forward, backend=backend, dynamic=dynamic, fullgraph=True)
    for batch, length in SHAPES:
        inputs = architecture.inputs(batch, length)
        expected, got = forward(**inputs), compiled(**inputs)
        if within_tolerance:
            torch.testing.assert_close(got, expected)
        else:
            assert torch.equal(got, expected)
    report = airgraph.explain().to_dict()
    assert report["counters"] == {"captures": 2, "recaptures": 0, "replays": 3, "eager_calls": 0}
    assert [row["state"] for row in report["graphs"]] == ["captured", "captured"]


@pytest.mark.parametrize("name", sorted(BROKEN_UP))
@torch.no_grad()
def test_a_model_with_graph_breaks_equals_eager(name: str) -> None:
    forward = _forward(zoo.ARCHITECTURES[name])
    # fullgraph=False: a loop whose length depends on data cannot be traced. dynamic=False only: the pieces are the
    # same, and every one of them would be compiled again.
    compiled = torch.compile(forward, backend=airgraph.get_backend(), dynamic=False)
    # Other shapes come in test_decode.py.
    inputs = zoo.ARCHITECTURES[name].inputs(2, 6)
    for _ in range(2):
        torch.testing.assert_close(compiled(**inputs), forward(**inputs))
    report = airgraph.explain().to_dict()
    assert report["counters"]["captures"] > 0
    assert all(row["reason"] for row in report["graphs"])
    assert report["counters"]["eager_calls"] == 0


@torch.no_grad()
def test_data_dependent_routing_is_a_named_fallback() -> None:
    """Told to trace operators with data-dependent shapes, Dynamo hands Mixtral's `nonzero` to the backend."""
    forward = _forward(zoo.ARCHITECTURES["mixtral-loop"])
    inputs = zoo.ARCHITECTURES["mixtral-loop"].inputs(2, 6)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(forward, backend=airgraph.get_backend(), dynamic=False)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                torch.testing.assert_close(compiled(**inputs), forward(**inputs))
    report = airgraph.explain().to_dict()
    skipped = [row for row in report["graphs"] if row["state"] == "skipped"]
    assert skipped and report["counters"]["eager_calls"] > 0
    for row in skipped:
        assert "depends on data" in row["reason"] and "modeling_mixtral.py:" in row["reason"]
        assert sum(f"{row['name']} runs eagerly" in str(w.message) for w in caught) == 1
