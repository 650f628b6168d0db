"""`get_compiler` captures what a backend of the user's own has lowered."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from reports import report
from torch import Tensor, nn
from torch._functorch.aot_autograd import aot_module_simplified
from torch.fx import GraphModule

from airgraph import torchair
from airgraph.errors import OptionError


def _own_backend(config: torchair.CompilerConfig | None = None, **settings: Any) -> Callable[..., Any]:
    def backend(gm: GraphModule, example_inputs: Sequence[Any]) -> Any:
        return aot_module_simplified(gm, example_inputs, fw_compiler=torchair.get_compiler(config), **settings)

    return backend


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        with torchair.scope.npu_stream_switch("side"):
            beside = x * 2
        torchair.ops.wait([beside])
        return self.linear(x) + beside + self.calls


@torch.no_grad()
@pytest.mark.parametrize("kept", [False, True])
def test_results_and_mutations_are_eagers(kept: bool, device: str) -> None:
    model = Model().to(device)
    expected = Model().to(device)
    expected.load_state_dict(model.state_dict())
    backend = _own_backend(keep_inference_input_mutations=kept)
    compiled = torch.compile(model, backend=backend, dynamic=True, fullgraph=True)
    for rows in (2, 2, 5):
        x = torch.randn(rows, 4, device=device)
        torch.testing.assert_close(compiled(x), expected(x))
    torch.testing.assert_close(model.calls, expected.calls)
    assert {(row["state"], row["streams"]) for row in report()["graphs"]} == {("captured", 2)}


@torch.no_grad()
def test_the_settings_count_and_dumps_are_written(device: str, tmp_path: Path) -> None:
    config = torchair.CompilerConfig()
    config.debug.graph_dump.type, config.debug.graph_dump.path = "py", str(tmp_path)
    config.debug.run_eagerly = True
    torch.compile(Model().to(device), backend=_own_backend(config))(torch.ones(2, 4, device=device))
    assert len(list(tmp_path.rglob("program.py"))) == 1
    assert report()["counters"]["eager_calls"] == 1


def test_graphs_of_training_run_uncaptured() -> None:
    model = Model()
    compiled = torch.compile(model, backend=_own_backend())
    with warnings.catch_warnings():
        # It comes once a process, perhaps in another test.
        warnings.filterwarnings("ignore", "airgraph: .* runs uncaptured")
        compiled(torch.ones(2, 4)).sum().backward()
    assert model.linear.weight.grad is not None
    assert {row["state"] for row in report()["graphs"]} == {"skipped"}


def test_outside_of_a_backend_it_is_an_error() -> None:
    with pytest.raises(OptionError, match="expected to be called by AOTAutograd within a backend of torch.compile"):
        torchair.get_compiler()(torch.fx.symbolic_trace(lambda x: x + 1), [torch.ones(2)])
