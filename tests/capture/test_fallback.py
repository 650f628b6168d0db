"""What cannot be captured runs eagerly, correct, with one warning that says what, where and why."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import airgraph

_LIBRARY = torch.library.Library("airgraph_fallback", "DEF")
_LIBRARY.define("unsafe(Tensor x) -> Tensor", tags=(torch.Tag.cudagraph_unsafe,))
_LIBRARY.impl("unsafe", lambda x: x + 1, "CPU")
_LIBRARY.impl("unsafe", lambda x: torch.empty_like(x), "Meta")


def _dynamic_shape(x: torch.Tensor) -> torch.Tensor:
    return torch.nonzero(x > 0)


def _host_read(x: torch.Tensor) -> torch.Tensor:
    return x * x.max().int().item()


def _unsafe(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.airgraph_fallback.unsafe(x) * 2


def _quantized(x: torch.Tensor) -> torch.Tensor:
    return torch.quantize_per_tensor(x, 0.5, 1, torch.qint8).dequantize()


@pytest.mark.parametrize(
    ("program", "operator", "reason"),
    [
        (_dynamic_shape, "aten::nonzero", "depends on data"),
        (_host_read, "aten::_local_scalar_dense", "on the host"),
        (_unsafe, "airgraph_fallback::unsafe", "cudagraph_unsafe"),
        (_quantized, "aten::quantize_per_tensor", "a tensor is quantized"),
    ],
)
@torch.no_grad()
def test_fallback_names_operator_line_and_reason_once(
    program: Callable[[torch.Tensor], torch.Tensor], operator: str, reason: str
) -> None:
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(program, backend="airgraph", fullgraph=True)
        x = torch.tensor([1.0, -2.0, 3.0])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                assert torch.equal(compiled(x), program(x))
    ours = [str(w.message) for w in caught if "airgraph" in str(w.message) and "eagerly" in str(w.message)]
    assert len(ours) == 1
    assert operator in ours[0] and reason in ours[0] and "test_fallback.py:" in ours[0]
    report = airgraph.explain().to_dict()
    assert report["counters"]["eager_calls"] == 3
    assert report["graphs"][0]["state"] == "skipped" and reason in report["graphs"][0]["reason"]


@torch.no_grad()
def test_tensor_subclasses_run_eagerly() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    compiled = torch.compile(lambda x: x * 2 + 1, backend="airgraph")
    x = TwoTensor(torch.ones(3), torch.zeros(3))
    out = compiled(x)
    assert torch.equal(out.a, torch.full((3,), 3.0)) and torch.equal(out.b, torch.ones(3))


@torch.no_grad()
def test_a_graph_on_several_devices_runs_eagerly() -> None:
    compiled = torch.compile(lambda x, y: (x + 1, y + 1), backend="airgraph", fullgraph=True)
    with pytest.warns(UserWarning, match="lies on meta, the graph on cpu"):
        out, _ = compiled(torch.ones(3), torch.ones(3, device="meta"))
    assert torch.equal(out, torch.full((3,), 2.0))


@pytest.mark.parametrize(
    ("program", "part"),
    [
        (lambda x: x.as_strided((4,), (1,)) + 0, slice(0, 16, 2)),
        (lambda x: x.as_strided((2,), (1,), 0) + 0, slice(4, 16)),
        (lambda x: x.as_strided((2,), (1,), 0) + 0, slice(0, 16)),
    ],
)
@torch.no_grad()
@pytest.mark.filterwarnings("ignore:airgraph")
def test_absolute_views_of_an_input_read_the_callers_storage(
    program: Callable[[torch.Tensor], torch.Tensor], part: slice
) -> None:
    x = torch.arange(16.0)[part]
    assert torch.equal(torch.compile(program, backend="airgraph")(x), program(x))


@pytest.mark.filterwarnings("ignore:airgraph")
@pytest.mark.parametrize("checkpointed", [False, True])
def test_training_on_streams_gives_eagers_gradients(checkpointed: bool) -> None:
    def layer(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        done = airgraph.Event("done")
        with airgraph.scope.stream("side"):
            y = torch.nn.functional.dropout((x @ weight).relu(), 0.5)
            done.record()
        done.wait()
        return y @ weight

    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return checkpoint(layer, x, weight, use_reentrant=False) if checkpointed else layer(x, weight)

    def gradients(call: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        given = [torch.randn(8, 8, requires_grad=True) for _ in range(2)]
        call(*given).sum().backward()
        return [each.grad for each in given]

    torch.testing.assert_close(gradients(torch.compile(program, backend="airgraph")), gradients(program))
