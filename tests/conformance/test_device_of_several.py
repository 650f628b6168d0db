"""A graph lies on the device of its tensors, whichever is the current one."""

from pathlib import Path
from typing import Any

import pytest
import torch
from reports import counters, report
from torch import Tensor, nn

import airgraph
from airgraph import scope


@pytest.fixture
def second(device: str) -> str:
    if device == "cpu" or torch.get_device_module(device).device_count() < 2:
        pytest.skip("there is one device")
    return f"{device}:1"


class _Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        x = self.down(torch.relu(self.up(x)))
        self.seen.add_(x.sum(0))
        return x + self.seen


def _pairs(*devices: str) -> list[tuple[nn.Module, nn.Module, str]]:
    """Models, each with an equal one that runs eagerly, on these devices."""
    made = []
    for place in devices:
        model, twin = _Mlp(), _Mlp()
        twin.load_state_dict(model.state_dict())
        made.append((model.to(place), twin.to(place), place))
    return made


@torch.no_grad()
def test_graphs_of_two_devices_take_turns(device: str, second: str) -> None:
    pairs = _pairs(f"{device}:0", second)
    calls = [torch.compile(model, backend="airgraph") for model, _, _ in pairs]
    held: list[tuple[Tensor, Tensor]] = []
    for step in range(6):
        for call, (_, twin, place) in zip(calls, pairs, strict=True):
            x = torch.full((4, 8), float(step), device=place)
            out, right = call(x), twin(x)
            assert str(out.device) == place
            held.append((out, right.clone()))
    for out, right in held:
        torch.testing.assert_close(out, right)
    assert counters()["captures"] == 2 and counters()["eager_calls"] == 0
    assert torch.get_device_module(device).current_device() == 0


@torch.no_grad()
@pytest.mark.parametrize("current", [0, 1])
def test_a_cached_graph_of_the_second_device(device: str, second: str, current: int, tmp_path: Path) -> None:
    module: Any = torch.get_device_module(device)
    ((model, twin, place),) = _pairs(second)
    module.set_device(current)
    try:
        call = airgraph.inference.cache_compile(model.forward, cache_dir=tmp_path, strict=True)
        for step in range(6):
            x = torch.full((4, 8), float(step), device=place)
            torch.testing.assert_close(call(x), twin(x))
        assert module.current_device() == current
    finally:
        module.set_device(0)


@torch.no_grad()
def test_many_inputs_on_the_second_device(device: str, second: str) -> None:
    def mixed(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> list[Tensor]:
        return [a + b, c * d, a - d, b.t() @ c]

    call = torch.compile(mixed, backend="airgraph", fullgraph=True)
    for _ in range(8):
        given = [torch.randn(6, 6, device=second) for _ in range(4)]
        right = mixed(*given)
        torch.get_device_module(device).synchronize(second)
        torch.testing.assert_close(call(*given), right)


@torch.no_grad()
def test_streams_of_a_graph_on_the_second_device(device: str, second: str) -> None:
    def beside(x: Tensor) -> tuple[Tensor, Tensor]:
        with scope.stream("side"):
            on_side = (x * 2).relu() + 1
        return x.exp() + x, on_side

    call = torch.compile(beside, backend="airgraph", fullgraph=True)
    for step in range(4):
        x = torch.full((64,), step / 4, device=second)
        for ours, right in zip(call(x), (x.exp() + x, (x * 2).relu() + 1), strict=True):
            torch.testing.assert_close(ours, right)
    (row,) = report()["graphs"]
    assert (row["state"], row["streams"]) == ("captured", 2)


@torch.no_grad()
def test_memory_of_the_second_device_s_graphs_is_there_and_goes(device: str, second: str) -> None:
    module: Any = torch.get_device_module(device)
    before = [module.memory_allocated(index) for index in range(2)]
    call = torch.compile(lambda x: (x * 2).cumsum(0) + 1, backend="airgraph")
    x = torch.ones(1 << 16, device=second)
    out = call(x)
    assert out[-1].item() == 2.0 * (1 << 16) + 1
    assert module.memory_allocated(0) == before[0]
    assert module.memory_allocated(1) > before[1] + x.nbytes
    del call, out, x
    torch._dynamo.reset()
    airgraph.reset()
    module.synchronize()
    assert module.memory_allocated(1) == before[1]
