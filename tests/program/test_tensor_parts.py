"""Compiled graphs take arguments of wrapping subclasses by their parts."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

import pytest
import torch
from quantized_weight import Int8Weight, quantize
from torch import nn

import airgraph
from airgraph.program.tensor_parts import form_of, form_text, plain_parts


def layer() -> Any:
    torch.manual_seed(0)
    return quantize(nn.Sequential(nn.Linear(24, 40)))


@torch.no_grad()
def test_a_compiled_model_reads_its_parts_at_each_call() -> None:
    net, x = layer(), torch.randn(2, 24)
    compiled = torch.compile(net, backend="airgraph", fullgraph=True)
    for change in (None, "values", "part", "weight"):
        weight = net[0].weight
        match change:
            case "values":
                weight.data_of.neg_()
            case "part":
                weight.scale = weight.scale * 2
            case "weight":
                net[0].weight = layer()[0].weight
        for _ in range(2):
            torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-4)
    states = [(each["state"], each["copied_nbytes"]) for each in airgraph.explain().to_dict()["graphs"]]
    assert {state for state, _ in states} == {"captured"}


@torch.no_grad()
def test_parts_that_are_parameters_are_read_where_they_lie() -> None:
    net, x = layer(), torch.randn(2, 24)
    compiled = torch.compile(net, backend="airgraph", fullgraph=True)
    compiled(x)
    (graph,) = airgraph.explain().to_dict()["graphs"]
    # The argument, and what operators make.
    assert graph["copied_nbytes"] < net[0].weight.data_of.nbytes


def test_where_gradients_are_needed_they_stay_whole() -> None:
    net, x = layer(), torch.randn(2, 24, requires_grad=True)
    compiled = torch.compile(net, backend="airgraph", fullgraph=True)
    out = compiled(x)
    torch.testing.assert_close(out, net(x))
    out.sum().backward()
    assert x.grad is not None


@torch.no_grad()
def test_sizes_that_vary() -> None:
    net = layer()
    compiled = torch.compile(net, backend="airgraph", fullgraph=True, dynamic=True)
    for rows in (2, 3, 7):
        x = torch.randn(rows, 24)
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_part_that_is_no_tensor_is_kept_as_it_is() -> None:
    """Such as the mesh of a DTensor."""
    if not torch.distributed.is_available():
        pytest.skip("this torch has no torch.distributed")
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    from torch.testing._internal.distributed.fake_pg import FakeStore

    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (2,))
        parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        weight = net[0].weight
        form = form_of(weight)
        assert [path for path, _ in plain_parts(weight)] == [("_local_tensor",)]
        assert form == form_of(net[0].weight) != form_of(net[2].weight)
        if "device_mesh" in weight.__tensor_flatten__()[0]:
            with pytest.raises(TypeError, match="DeviceMesh, which cannot be written down"):
                form_text(form)
        compiled = torch.compile(net, backend="airgraph", fullgraph=True)
        for rows in (2, 3):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(compiled(x), net(x))
    finally:
        distributed.destroy_process_group()
    assert {each["state"] for each in airgraph.explain().to_dict()["graphs"]} == {"dropped"}
    assert airgraph.explain().to_dict()["counters"]["eager_calls"] == 0


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Settings:
    color: Color
    sizes: list[int]


def test_forms_are_texts() -> None:
    text = form_text(("a", 1, [True, None], {"b": torch.float32}))
    assert text == "tuple('a', 1, list(True, None), dict('b': torch.float32))"
    text = form_text(Settings(Color.RED, [1, 2]))
    assert text.endswith("Settings of dict('color': test_tensor_parts.Color.RED, 'sizes': list(1, 2))")
    with pytest.raises(TypeError, match=r"it holds a builtins.object, which cannot be written down"):
        form_text({"a": object()})


def test_a_wrapper_within_a_wrapper() -> None:
    inner = Int8Weight(torch.ones(4, 2, dtype=torch.int8), torch.ones(4, 1), [1, 2])
    outer = Int8Weight(inner, torch.ones(4, 1), [1, 2])
    assert [path for path, _ in plain_parts(outer)] == [("data_of", "data_of"), ("data_of", "scale"), ("scale",)]
    assert form_of(torch.ones(2)) is None
    names = [name for name, _ in form_of(outer)[1]]
    assert names == ["data_of", "scale"] and form_of(outer)[1][0][1] == form_of(inner)


def test_weights_are_placed_by_their_parts() -> None:
    net = layer()
    before = net[0].weight.data_of.clone()
    placed = airgraph.cpu.place_weights(net)
    assert placed.nbytes in (0, 40 * 24 + 192 + 192)
    assert torch.equal(net[0].weight.data_of, before)
