"""Weights and caches of a model that moved are followed, tied or apart."""

from pathlib import Path

import torch
from doors import both_doors, through
from moving import args_of, few_captures
from reports import counters
from torch import Tensor, nn


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x)))


@torch.no_grad()
def test_a_cache_of_the_model_that_is_exchanged(device: str) -> None:
    """As an attribute, as a buffer, and marked as static."""

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("keys", torch.zeros(4, 3, device=device))
            self.values = torch.zeros(4, 3, device=device)
            torch._dynamo.mark_static_address(self.values)

        def forward(self, row: Tensor, x: Tensor) -> Tensor:
            self.keys.index_copy_(0, row, x)
            self.values.index_copy_(0, row, x * 2)
            return self.keys.sum(0) * self.values.sum(0)

    ours, theirs = Decoder(), Decoder()
    sets = [[(torch.zeros(4, 3, device=device), torch.ones(4, 3, device=device)) for _ in range(2)] for _ in range(2)]
    call = torch.compile(ours, backend="airgraph", dynamic=False)
    for i in range(200):
        for model, pairs in ((ours, sets[0]), (theirs, sets[1])):
            keys, values = pairs[i % 2]
            torch._dynamo.mark_static_address(values)
            model.keys, model.values = keys, values
        args = args_of(device, i)
        torch.testing.assert_close(call(*args), theirs(*args))
    torch.testing.assert_close(sets[0], sets[1])
    few_captures(device)


@torch.no_grad()
@both_doors
def test_moved_parameters_are_followed(device: str, door: str, tmp_path: Path) -> None:
    model = Mlp().to(device)
    call = through(door, model.forward, tmp_path, strict=True)
    x = torch.randn(3, 8, device=device)
    first, last = model.first, model.last

    def exchange() -> None:
        first.weight.data, last.weight.data = last.weight.data, first.weight.data

    def both_of_one_storage() -> None:
        first.weight.data, last.weight.data = torch.randn(2, 8, 8, device=device)

    moves = (
        lambda: setattr(first.weight, "data", torch.randn(8, 8, device=device)),
        lambda: first.bias.set_(torch.randn(8, device=device)),
        exchange,
        lambda: last.weight.data.copy_(torch.randn(8, 8)),
        lambda: model.load_state_dict({n: torch.randn_like(p) for n, p in model.state_dict().items()}, assign=True),
        lambda: setattr(first, "weight", nn.Parameter(torch.randn(8, 8, device=device))),
        # At an address that is no multiple of what allocators align to.
        lambda: setattr(first.weight, "data", torch.randn(65, device=device)[1:].view(8, 8)),
        both_of_one_storage,
    )
    torch.testing.assert_close(call(x), model(x))
    for _ in range(3):
        for move in moves:
            move()
            for _ in range(2):
                torch.testing.assert_close(call(x), model(x))
    assert counters()["eager_calls"] == 0
    if device == "cpu":
        assert counters()["captures"] == 1


@torch.no_grad()
def test_prepared_kernels_follow_a_moved_weight(device: str) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 64)).to(device).eval()
    call = torch.compile(model, backend="airgraph", dynamic=False)
    x = torch.randn(8, 64, device=device)
    sets = [[torch.randn_like(p) for p in model.parameters()] for _ in range(2)]
    for i in range(8):
        for parameter, value in zip(model.parameters(), sets[i % 2], strict=True):
            parameter.data = value
        if i >= 4:
            sets[i % 2][0].mul_(1.5)
        torch.testing.assert_close(call(x), model(x), rtol=1e-4, atol=1e-4)
    few_captures(device)


@torch.no_grad()
def test_tied_weights_that_come_apart(device: str) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Parameter(torch.randn(8, 8, device=device))
            self.head = nn.Parameter(self.embedding.data)

        def forward(self, x: Tensor) -> Tensor:
            return (x @ self.embedding).relu() @ self.head.t()

    model = Tied()
    call = torch.compile(model, backend="airgraph", dynamic=False)
    x = torch.randn(3, 8, device=device)
    for change in (
        lambda: None,
        lambda: setattr(model.head, "data", torch.randn(8, 8, device=device)),
        lambda: setattr(model.embedding, "data", model.head.data),
        lambda: setattr(model.embedding, "data", torch.randn(8, 8, device=device)),
        lambda: setattr(model.head, "data", model.embedding.data.t()),
        lambda: setattr(model.head, "data", model.embedding.data.t().contiguous()),
    ):
        change()
        for _ in range(2):
            torch.testing.assert_close(call(x), model(x))
    assert counters()["eager_calls"] == 0


@torch.no_grad()
def test_static_inputs_tied_at_the_capture_only(device: str) -> None:
    """Marked static and read, so that nobody but airgraph compares where they lie."""
    call = torch.compile(lambda a, b: a * 2 + b, backend="airgraph", dynamic=False)
    one, two, whole = (torch.randn(4, device=device) for _ in range(3))
    views = [whole[:4], whole[:4].view(4)]
    for tensor in (one, two, *views):
        torch._dynamo.mark_static_address(tensor)
    for a, b in ((one, one), (one, two), (two, one), (*views,), (views[0], two), (two, two), (one, one)):
        torch.testing.assert_close(call(a, b), a * 2 + b)
    assert counters()["eager_calls"] == 0
