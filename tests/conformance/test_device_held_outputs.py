"""Outputs that the caller holds keep their values, copied, resized or fed back."""

from collections.abc import Callable

import pytest
import torch

import airgraph


@torch.no_grad()
def test_held_outputs_are_never_overwritten(device: str) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        both = torch.cat([x, x * 2])
        return both[:2], both[2:], x.exp()

    compiled = torch.compile(program, backend="airgraph", fullgraph=True)
    held = []
    for _ in range(5):
        x = torch.randn(2, 3, device=device)
        outs = compiled(x)
        held.append((*outs, outs[2][1], *program(x), program(x)[2][1]))
    for row in held:
        for ours, theirs in zip(row[:4], row[4:], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
        # Written by the caller, it changes none of the graph's.
        row[0].fill_(9)
    x = torch.randn(2, 3, device=device)
    for ours, theirs in zip(compiled(x), program(x), strict=True):
        torch.testing.assert_close(ours, theirs)


@torch.no_grad()
@pytest.mark.parametrize(
    "program",
    [
        lambda x: ((b := x + 1)[::3], b),
        lambda x: ((b := x + 1).t()[::2], b),
        lambda x: ((b := x + 1)[::3], b[1:3]),
        lambda x: (x.sum(0).expand(4, 3),),
        lambda x: ((b := (x > 0).view(torch.uint8).flatten())[4:8].view(torch.float32), b),
    ],
)
def test_held_parts_of_one_storage(device: str, program: Callable[[torch.Tensor], tuple[torch.Tensor, ...]]) -> None:
    compiled = torch.compile(program, backend="airgraph", fullgraph=True)
    held = []
    for _ in range(4):
        x = torch.randn(4, 3, device=device)
        held.append((compiled(x), program(x)))
    for ours, theirs in held:
        for a, b in zip(ours, theirs, strict=True):
            assert torch.equal(a.cpu(), b.cpu()) and a.stride() == b.stride()


@torch.no_grad()
def test_memory_of_an_output_that_the_caller_resized_is_not_written(device: str) -> None:
    compiled = torch.compile(lambda x: x + 1, backend="airgraph", fullgraph=True)
    x = torch.zeros(5, device=device)
    mine = compiled(x)
    mine.resize_(100)
    mine.fill_(5)
    for value in (1.0, 2.0):
        assert compiled(torch.full((5,), value, device=device)).tolist() == [value + 1] * 5
    assert mine.tolist() == [5.0] * 100
    freed = compiled(x)
    freed.untyped_storage().resize_(0)
    del freed
    assert compiled(x).tolist() == [1.0] * 5


@torch.no_grad()
def test_an_output_fed_back_as_input(device: str) -> None:
    compiled = torch.compile(lambda x: x + 1, backend="airgraph", fullgraph=True)
    x = torch.zeros(3, device=device)
    for _ in range(5):
        x = compiled(x)
    assert x.tolist() == [5.0] * 3


@torch.no_grad()
@pytest.mark.parametrize("clone_output", [True, [0]])
def test_copies_of_outputs(device: str, clone_output: object) -> None:
    compiled = torch.compile(
        lambda x: (x + 1, x + 2),
        backend="airgraph",
        options={"clone_output": clone_output, "live_outputs": "overwrite"},
    )
    first = compiled(torch.zeros(2, device=device))[0]
    compiled(torch.ones(2, device=device))
    assert first.tolist() == [1.0, 1.0]


@torch.no_grad()
def test_live_outputs_policies(device: str) -> None:
    def make(policy: str) -> object:
        torch._dynamo.reset()
        call = torch.compile(lambda x: x + 1, backend="airgraph", options={"live_outputs": policy})
        # What the first call returns may be its own.
        call(zeros)
        return call

    zeros, ones = torch.zeros(2, device=device), torch.ones(2, device=device)
    compiled = make("error")
    held = compiled(zeros)
    with pytest.raises(airgraph.errors.ReplayError, match="still held"):
        compiled(ones)
    del held
    assert compiled(ones).tolist() == [2.0, 2.0]
    compiled = make("warn")
    held = compiled(zeros)
    with pytest.warns(UserWarning, match="still held"):
        compiled(ones)
    compiled = make("overwrite")
    held = compiled(zeros)
    compiled(ones)
    assert held.tolist() == [2.0, 2.0]
