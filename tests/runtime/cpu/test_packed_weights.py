"""Weights in panels: which are kept so, told, shared, and followed when they change."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from told_products import Net, compiled, told, ways

import airgraph
from airgraph.runtime.engine.loading import engine

pytestmark = pytest.mark.skipif(not engine().CHOOSES_PRODUCTS, reason="the engine in Python takes PyTorch's kernels")


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products with weights in panels are always the fastest."""
    monkeypatch.setenv("AIRGRAPH_CACHE_DIR", str(tmp_path))
    told(monkeypatch, own=2000.0, aten=2000.0, packed=1000.0)


@torch.no_grad()
def test_packed_weights_are_told_and_shared(packed: None) -> None:
    net = Net()
    function = compiled(net, pack_weights=True)
    for rows in (24, 64):
        x = torch.randn(rows, 128)
        torch.testing.assert_close(function(x), net(x))
    assert ways() == ["packed"] * 4
    weights = sum(each.weight.nbytes for each in (net.up, net.down))
    assert weights <= airgraph.explain().packed_nbytes <= weights * 1.05


@torch.no_grad()
def test_without_the_option_nothing_is_packed(packed: None) -> None:
    compiled(Net())(torch.randn(24, 128))
    assert airgraph.explain().packed_nbytes == 0 and set(ways()) == {"own"}


@pytest.mark.parametrize("how", ["in place", ".data", "load_state_dict", "SGD", "Adam fused", "SGD fused"])
def test_changes_are_seen_by_every_shape(packed: None, how: str) -> None:
    net = Net()
    function = compiled(net, pack_weights=True)
    shapes = [torch.randn(rows, 128) for rows in (24, 64)]
    for _ in range(2):
        with torch.no_grad():
            for x in shapes:
                torch.testing.assert_close(function(x), net(x))
            match how:
                case "in place":
                    net.up.weight[3] = 2
                case ".data":
                    net.up.weight.data.mul_(1.5)
                case "load_state_dict":
                    net.load_state_dict(Net().state_dict())
        if how.startswith(("SGD", "Adam")):
            optimizer = getattr(torch.optim, how.split()[0])(net.parameters(), lr=0.5, fused="fused" in how)
            # Of which most gradients are zero.
            net(torch.eye(128)[5:6]).square().mean().backward()
            optimizer.step()
            net.zero_grad()
    with torch.no_grad():
        for x in shapes:
            torch.testing.assert_close(function(x), net(x))
    assert set(ways()) == {"packed"}


@torch.no_grad()
def test_a_graph_by_hand_that_writes_a_weight_is_seen_at_each_replay(packed: None) -> None:
    net, x = Net(), torch.randn(24, 128)
    function = compiled(net, pack_weights=True)
    one = torch.zeros(256, 128)
    one[3, 5] = 10.0
    for _ in range(2):
        function(x)
    graph = airgraph.cpu.CPUGraph()
    with airgraph.cpu.graph(graph):
        net.up.weight[:128].add_(one[:128])
    for _ in range(4):
        graph.replay()
        torch.testing.assert_close(function(x), net(x))


@torch.no_grad()
def test_parameters_that_are_not_looked_at_are_not_packed(packed: None) -> None:
    compiled(Net(), pack_weights=True, frozen_parameter=True)(torch.randn(24, 128))
    assert airgraph.explain().packed_nbytes == 0 and set(ways()) == {"own"}


@torch.no_grad()
def test_weights_that_share_memory_and_not_their_versions_are_not_packed(packed: None) -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = torch.nn.Embedding(256, 128), torch.nn.Linear(128, 256, bias=False)
            self.head.weight.data = self.embedding.weight.data

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.embedding(tokens))

    net, tokens = Tied(), torch.arange(24)
    function = compiled(net, pack_weights=True)
    for weight in (net.head.weight, net.embedding.weight):
        torch.testing.assert_close(function(tokens), net(tokens))
        weight[5].zero_()
    torch.testing.assert_close(function(tokens), net(tokens))
    assert airgraph.explain().packed_nbytes == 0


@torch.no_grad()
def test_what_may_not_be_packed_takes_the_best_of_the_other_ways(packed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, own=2000.0, aten=1000.0, packed=500.0)
    net = Net()
    net.down.weight.data = net.up.weight.data.view(128, 256)
    compiled(net, pack_weights=True)(torch.randn(24, 128))
    assert ways() == ["aten", "aten"]


@torch.no_grad()
def test_another_parameter_is_followed(packed: None) -> None:
    net, x = Net(), torch.randn(24, 128)
    function = compiled(net, pack_weights=True)
    function(x)
    for _ in range(3):
        net.up.weight = torch.nn.Parameter(torch.randn(256, 128))
        torch.testing.assert_close(function(x), net(x))


@torch.no_grad()
def test_cached_calls_see_changes_too(packed: None, tmp_path: Path) -> None:
    net, x = Net(), torch.randn(24, 128)
    call = airgraph.inference.cache_compile(
        net.forward, cache_dir=str(tmp_path / "graphs"), options={"pack_weights": True}
    )
    for _ in range(3):
        torch.testing.assert_close(call(x), net(x))
        net.up.weight.add_(0.1)
    assert set(ways()) == {"packed"}


@torch.no_grad()
def test_what_the_graph_writes_is_not_packed(packed: None) -> None:
    class Written(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            self.up.weight.mul_(0.5)
            return y + x @ self.up.weight[:128]

    net = Written()
    twin = Written()
    twin.load_state_dict(net.state_dict())
    function = compiled(net, pack_weights=True)
    for _ in range(3):
        x = torch.randn(24, 128)
        torch.testing.assert_close(function(x), twin(x))
    assert "packed" not in [
        r["way"] for r in airgraph.explain().to_dict()["products"] if r["product"].startswith("24x128 @ 256")
    ]


@torch.no_grad()
def test_threads_with_weights_of_their_own(packed: None) -> None:
    """Each call gives its weights as arguments: a replay never reads what another has packed meanwhile."""
    nets = [Net() for _ in range(2)]
    functions = [compiled(net, pack_weights=True) for net in nets]
    x = torch.randn(24, 128)
    wrong: list[int] = []

    def run(which: int) -> None:
        with torch.no_grad():
            expected = nets[which](x)
            for _ in range(50):
                if not torch.allclose(functions[which](x), expected, atol=1e-5):
                    wrong.append(which)

    for net, function in zip(nets, functions, strict=True):
        torch.testing.assert_close(function(x), net(x))
    threads = [threading.Thread(target=run, args=(which,)) for which in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


@torch.no_grad()
def test_memory_goes_with_the_graphs(packed: None) -> None:
    net = Net()
    function = compiled(net, pack_weights=True)
    function(torch.randn(24, 128))
    assert airgraph.explain().packed_nbytes
    airgraph.reset()
    assert airgraph.explain().packed_nbytes == 0
