"""Each input has the role and the name that its user would give it."""

import pytest
import torch
from torch import Tensor, nn

from airgraph.capture.ledger import ledger
from airgraph.program.inputs import InputRole
from airgraph.runtime.protocol import DeviceGraph


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear1 = nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor, kv: list[Tensor]) -> Tensor:
        self.seen.add_(1)
        kv[0].add_(x.sum())
        return self.linear1(x) * self.scale + kv[0].sum() + x.shape[0]


@torch.no_grad()
def test_roles_and_sources() -> None:
    compiled = torch.compile(Model(), backend="airgraph", dynamic=True, fullgraph=True)
    compiled(torch.randn(3, 4), [torch.zeros(2)])
    (graphed,) = [graphed for graphed in ledger.callables if graphed.captures]
    roles = {plan.source: plan.role for plan in graphed._program.inputs}
    assert roles["self.linear1.weight"] is InputRole.STATIC
    assert roles["self.linear1.bias"] is InputRole.STATIC
    assert roles["self.scale"] is InputRole.STATIC
    assert roles["self.seen"] is InputRole.MUTATED
    assert roles["kv[0]"] is InputRole.MUTATED
    assert roles["x"] is InputRole.USER
    assert roles["x.size()[0]"] is InputRole.SCALAR
    assert {plan.source for plan in graphed._program.inputs if plan.parameter} == {
        "self.linear1.weight",
        "self.linear1.bias",
    }


def _has_a_place(device_graph: DeviceGraph, index: int) -> bool:
    try:
        return device_graph.captured_address(index) != 0
    except IndexError:
        return False


@torch.no_grad()
@pytest.mark.parametrize("frozen", [True, False])
def test_frozen_parameter_skips_the_address_check_of_parameters_only(frozen: bool) -> None:
    compiled = torch.compile(Model(), backend="airgraph", options={"frozen_parameter": frozen})
    compiled(torch.randn(3, 4), [torch.zeros(2)])
    (graphed,) = [graphed for graphed in ledger.callables if graphed.captures]
    (graph,) = graphed.captures
    checked = {plan.source for plan in graphed._program.inputs if _has_a_place(graph.device_graph, plan.index)}
    assert ("self.linear1.weight" in checked) is not frozen
    assert "self.scale" in checked and "kv[0]" in checked
