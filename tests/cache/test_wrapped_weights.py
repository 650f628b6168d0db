"""Weights of a wrapping subclass, as quantization libraries make them, are inputs of cached graphs by their parts."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from cached_functions import cached
from quantized_weight import Int8Weight, quantize
from starts import Starts, outcomes_of, write
from torch import Tensor, nn

import airgraph


@dataclasses.dataclass(slots=True)
class Settings:
    number: int


class Opaque:
    def __init__(self) -> None:
        self.number = 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and other.number == self.number


def model() -> nn.Module:
    torch.manual_seed(0)
    return quantize(nn.Sequential(nn.Linear(24, 40, bias=False), nn.ReLU(), nn.Linear(40, 8)))


def weight_of(model: nn.Module, name: str) -> Int8Weight:
    weight: Any = model.get_parameter(name)
    assert isinstance(weight, Int8Weight)
    return weight


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 24)


@torch.no_grad()
def test_they_are_cached_and_multiplied_as_they_lie(x: Tensor, tmp_path: Path) -> None:
    net = model()
    call = cached(net.forward, tmp_path)
    for _ in range(3):
        torch.testing.assert_close(call(x), net(x))
    assert len(list(tmp_path.rglob("*.airgraph"))) == 1
    assert airgraph.explain().to_dict()["passes"].get("mixed_products", 0) in (0, 2)
    (graph,) = airgraph.explain().to_dict()["graphs"]
    assert graph["state"] == "captured" and graph["replays"] == 3


@torch.no_grad()
@pytest.mark.parametrize("what", ["values", "part", "weight", "context", "in place", "class"])
def test_what_changes_about_them_is_seen(what: str, x: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = model()
    call = cached(net.forward, tmp_path)
    for _ in range(2):
        call(x)
    weight = weight_of(net, "0.weight")
    match what:
        case "values":
            weight.data_of.neg_()
        case "part":
            weight.scale = weight.scale * 3
        case "weight":
            other = model()
            weight_of(other, "0.weight").data_of.neg_()
            net[0].weight = other[0].weight
        case "context":
            weight.block = [2, 12]
        case "in place":
            weight.block[0] = 5
        case "class":
            monkeypatch.setattr(Int8Weight, "dequantized", lambda self: self.data_of)
    for _ in range(2):
        torch.testing.assert_close(call(x), net(x))
    # Of values nothing is taken for granted.
    files = len(list(tmp_path.rglob("*.airgraph")))
    assert files == (2 if what in ("context", "in place") else files)


@torch.no_grad()
@pytest.mark.parametrize("what", ["swap", "attribute", "settings", "opaque"])
@pytest.mark.parametrize("comes_with_the_call", [False, True])
def test_state_of_all_kinds_is_compared(what: str, comes_with_the_call: bool, x: Tensor, tmp_path: Path) -> None:
    net = model()
    weight = weight_of(net, "0.weight")
    weight.block = {"sizes": [1, 24], "settings": Settings(2), "opaque": Opaque()}
    function = (lambda x, layer: layer(x)) if comes_with_the_call else net[0].forward
    args = (x, net[0]) if comes_with_the_call else (x,)
    if what != "opaque":
        del weight.block["opaque"]
    call = cached(function, tmp_path, strict=what != "opaque")
    with warnings.catch_warnings():
        # An object without a text of its own is not cached.
        warnings.simplefilter("ignore")
        for _ in range(3):
            torch.testing.assert_close(call(*args), net[0](x))
        match what:
            case "swap":
                other = weight_of(model(), "0.weight")
                other.data_of.neg_()
                weight.__dict__ = other.__dict__
            case "attribute":
                weight.block["sizes"][0] = 9
            case "settings":
                weight.block["settings"].number = 7
            case "opaque":
                weight.block["opaque"].number = 7
        for _ in range(3):
            torch.testing.assert_close(call(*args), net[0](x))
    files = len(list(tmp_path.rglob("*.airgraph")))
    assert files == {"swap": files, "opaque": 0}.get(what, 2)


@torch.no_grad()
def test_a_part_that_the_program_also_reads_by_itself(x: Tensor, tmp_path: Path) -> None:
    def program(x: Tensor, layer: nn.Linear) -> Tensor:
        return layer(x) + layer.weight.scale.sum() + layer.weight.data_of.float().mean()

    net = model()
    call = cached(program, tmp_path)
    compiled = torch.compile(program, backend="airgraph", fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(call(x, net[0]), program(x, net[0]), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(compiled(x, net[0]), program(x, net[0]), rtol=1e-4, atol=1e-4)
        weight_of(net, "0.weight").scale.mul_(2)


@torch.no_grad()
def test_they_may_come_with_the_call(x: Tensor, tmp_path: Path) -> None:
    def product(x: Tensor, layers: list[nn.Module]) -> Tensor:
        for layer in layers:
            x = layer(x)
        return x

    net, other = model(), model()
    weight_of(other, "0.weight").data_of.neg_()
    call = cached(product, tmp_path)
    for each in (net, other, net):
        torch.testing.assert_close(call(x, list(each)), each(x))
    assert len(list(tmp_path.rglob("*.airgraph"))) == 1
    weight_of(net, "0.weight").block[0] = 3
    torch.testing.assert_close(call(x, list(net)), net(x))
    assert len(list(tmp_path.rglob("*.airgraph"))) == 2


@torch.no_grad()
def test_a_function_that_makes_another_of_one_is_not_cached(x: Tensor, tmp_path: Path) -> None:
    def grow(x: Tensor, layer: nn.Linear) -> Tensor:
        layer.weight.add_(1)
        return layer(x)

    call = cached(grow, tmp_path)
    with pytest.raises(airgraph.errors.CacheError, match="it changes what a tensor of a wrapping subclass is made of"):
        call(x, model()[0])
    assert not list(tmp_path.rglob("*.airgraph"))


@torch.no_grad()
def test_one_that_is_returned_is_the_one_that_was_given(x: Tensor, tmp_path: Path) -> None:
    def both(x: Tensor, layer: nn.Linear) -> tuple[Tensor, Tensor]:
        return layer(x), layer.weight

    net = model()
    call = cached(both, tmp_path)
    for _ in range(2):
        out, weight = call(x, net[0])
        torch.testing.assert_close(out, net[0](x))
        assert weight is net[0].weight


def test_a_second_start_reads_them(starts: Starts, tmp_path: Path) -> None:
    script = write(
        tmp_path / "project",
        {
            "start": """
            import torch
            from torch import nn
            from quantized_weight import quantize

            torch.manual_seed(0)
            x = torch.ones(1, 24)
            net = quantize(nn.Sequential(nn.Linear(24, 40), nn.Linear(40, 8)))
            compare("model", cached(net.forward))
            """,
            "quantized_weight": (Path(__file__).parents[1] / "quantized_weight.py").read_text(),
        },
    )
    first, second = (outcomes_of(starts, script, tmp_path / "cache")["model"] for _ in range(2))
    assert (first.error, second.error) == ("", "")
    assert (first.traced, second.traced) == (1, 0)
