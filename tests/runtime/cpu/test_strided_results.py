"""Operators whose results lie otherwise than their fake kernels say, or that cannot write into any strides."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import airgraph
from airgraph.runtime.cpu.tape import TensorRef

LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "turned": lambda: torch.rand(6, 5, 8).transpose(1, 2),
    "every other": lambda: torch.rand(6, 8, 10)[:, :, ::2],
    "channels last": lambda: torch.rand(2, 8, 4, 6).contiguous(memory_format=torch.channels_last),
    "dense": lambda: torch.rand(6, 8, 5),
}
PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "batch norm": lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
    "batch norm with weights": lambda x: torch.nn.functional.batch_norm(
        x, torch.zeros(8), torch.ones(8), torch.rand(8), torch.rand(8), training=True
    ),
    "normal": lambda x: torch.normal(x, x + 1),
    "poisson": lambda x: torch.poisson(x * 9),
    "bernoulli": torch.bernoulli,
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.5),
    "group norm": lambda x: torch.nn.functional.group_norm(x, 2),
    "softmax": lambda x: x.softmax(1) + x.cumsum(1),
    "median": lambda x: x.median(1).values + x.sort(1).values.sum(1),
    "like": lambda x: torch.rand_like(x) + torch.randn_like(x) + torch.empty_like(x).normal_(),
}


@torch.no_grad()
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled
def test_results_are_those_of_eager(name: str, layout: str) -> None:
    program, x = PROGRAMS[name], LAYOUTS[layout]()
    compiled = torch.compile(program, backend="airgraph")
    for seed in range(2):
        torch.manual_seed(seed)
        expected = program(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(compiled(x), expected)


@torch.no_grad()
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_of_captures_by_hand_are_those_of_eager(name: str, layout: str) -> None:
    program, x, graph = PROGRAMS[name], LAYOUTS[layout](), airgraph.cpu.CPUGraph()
    torch.manual_seed(0)
    with airgraph.cpu.graph(graph):
        made = program(x)
    torch.manual_seed(0)
    expected = program(x)
    torch.manual_seed(0)
    graph.replay()
    torch.testing.assert_close(made, expected)


@pytest.mark.parametrize(
    ("shape", "stride", "is_row_major"),
    [((2, 3), (3, 1), True), ((2, 3), (1, 2), False), ((1, 3), (7, 1), True), ((), (), True), ((2, 1), (1, 9), True)],
)
def test_row_major(shape: tuple[int, ...], stride: tuple[int, ...], is_row_major: bool) -> None:
    assert TensorRef(0, torch.float32, shape, stride, 0, False, False).is_row_major is is_row_major
