"""How urgent a graph's streams are."""

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

from airgraph import scope
from airgraph.program.streams import priorities_of


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:.*orders the two")
def test_a_wait_of_a_pass_leaves_its_stream_as_urgent_as_it_was() -> None:
    found: list[dict[str, int]] = []

    def look(gm: GraphModule, example_inputs: object, options: object) -> None:
        found.append(priorities_of(gm.graph))

    def program(x: Tensor) -> Tensor:
        made = x.exp()
        with scope.stream("urgent", priority=-1):
            return made.sin()

    call = torch.compile(program, backend="airgraph", options={"post_grad_custom_post_pass": look})
    call(torch.rand(3))
    assert found == [{"urgent": -1}]
