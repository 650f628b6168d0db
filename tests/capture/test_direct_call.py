"""AOTAutograd's wrappers are left out only where they would do nothing."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import airgraph
from airgraph.capture.callable import GraphedCallable


def _wrapped(function: Callable[..., Any], *args: Any) -> bool:
    """Whether the graph is called through AOTAutograd's wrappers: those pass a list, a direct call single arguments."""
    direct = []
    original = GraphedCallable.call

    def call(self: GraphedCallable, *given: Any) -> list[Any]:
        direct.append(len(given))
        return original(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GraphedCallable, "call", call)
        compiled = torch.compile(function, backend="airgraph", fullgraph=True)
        compiled(*args)
    assert airgraph.explain().to_dict()["counters"]["eager_calls"] == 0
    return not direct


@torch.no_grad()
def test_plain_graphs_are_called_directly() -> None:
    linear = torch.nn.Linear(4, 4)
    cache = torch.zeros(4, 4)
    assert not _wrapped(lambda x: linear(x).relu(), torch.randn(2, 4))
    assert not _wrapped(lambda x, c: (c.add_(1) * x, x * 2), torch.randn(4), cache)
    assert torch.equal(cache, torch.ones(4, 4))


@torch.no_grad()
def test_outputs_that_alias_an_input_are_made_by_the_wrappers() -> None:
    assert _wrapped(lambda x: (x.t(), x + 1), torch.randn(2, 4))


@torch.no_grad()
def test_outputs_that_alias_one_another_share_memory() -> None:
    compiled = torch.compile(lambda x: ((y := x + 1), y.view(-1)), backend="airgraph", fullgraph=True)
    x = torch.randn(2, 4)
    first, flat = compiled(x)
    flat[0] = 7
    assert first[0, 0] == 7 and torch.equal(compiled(x)[0], x + 1)


@torch.no_grad()
def test_arguments_that_share_memory_are_not_merged() -> None:
    def program(whole: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        whole.add_(1)
        return part * 2

    compiled = torch.compile(program, backend="airgraph", fullgraph=True)
    x = torch.zeros(4)
    # What AOTAutograd would make of them is wrong for arguments that share none.
    with pytest.warns(UserWarning, match="shares memory"):
        assert torch.equal(compiled(x, x[1:]), torch.full((3,), 2.0))
    assert torch.equal(x, torch.ones(4))
    assert torch.equal(compiled(x, torch.ones(3)), torch.full((3,), 2.0))
    counters = airgraph.explain().to_dict()["counters"]
    assert (counters["captures"], counters["eager_calls"]) == (1, 1)


@torch.no_grad()
def test_the_same_argument_twice() -> None:
    compiled = torch.compile(lambda a, b: a * 2 + b, backend="airgraph", fullgraph=True)
    x = torch.randn(3)
    for _ in range(2):
        assert torch.equal(compiled(x, x), x * 2 + x)


@torch.no_grad()
def test_changed_metadata_of_an_argument() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x.t_()
        return x + 1

    compiled = torch.compile(program, backend="airgraph")
    x = torch.randn(2, 3)
    expected = x.t() + 1
    assert torch.equal(compiled(x), expected) and x.shape == (3, 2)


def test_a_written_argument_counts_a_version() -> None:
    """What autograd saved before the call must not be used after it."""
    cache = torch.zeros(3)
    weight = torch.ones(3, requires_grad=True)
    loss = (weight * cache).sum()
    compiled = torch.compile(lambda c: c.add_(1) * 2, backend="airgraph", fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            before = cache._version
            compiled(cache)
            assert cache._version > before
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with torch.inference_mode():
        compiled(torch.zeros(3))


@torch.no_grad()
def test_autocast_is_captured_once_and_not_applied_again() -> None:
    linear = torch.nn.Linear(4, 4)
    compiled = torch.compile(lambda x: linear(x) * 2.0 + x, backend="airgraph", fullgraph=True)
    for _ in range(3):
        x = torch.randn(2, 4)
        with torch.autocast("cpu", torch.bfloat16):
            expected = linear(x) * 2.0 + x
            ours = compiled(x)
        assert ours.dtype == expected.dtype and torch.equal(ours, expected)
    assert airgraph.explain().to_dict()["counters"] == {
        "captures": 1,
        "recaptures": 0,
        "replays": 3,
        "eager_calls": 0,
    }


@torch.no_grad()
def test_an_output_that_is_a_subclass_stays_one() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    compiled = torch.compile(lambda x: TwoTensor(x + 1, x + 2), backend="airgraph")
    out = compiled(torch.zeros(3))
    assert isinstance(out, TwoTensor) and out.a.tolist() == [1.0] * 3 and out.b.tolist() == [2.0] * 3


@torch.no_grad()
def test_a_wrapper_of_one_tensor_stays_one() -> None:
    distributed = pytest.importorskip("torch.distributed.tensor")
    if not torch.distributed.is_available():
        pytest.skip("this torch is built without torch.distributed")
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
        replicated = [distributed.Replicate()]
        compiled = torch.compile(lambda x: distributed.DTensor.from_local(x + 1, mesh, replicated), backend="airgraph")
        out = compiled(torch.zeros(3))
        assert isinstance(out, distributed.DTensor) and out.to_local().tolist() == [1.0] * 3
    finally:
        torch.distributed.destroy_process_group()
