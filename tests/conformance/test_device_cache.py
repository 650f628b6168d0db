"""A function from the compile cache does on every device what one from torch.compile does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from reports import counters, report
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

import airgraph
from airgraph.cache.cached_function import CachedFunction
from airgraph.errors import InputMoved


class Decoder(nn.Module):
    def __init__(self, device: str) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8).requires_grad_(False).to(device)
        self.scale = 2.0

    def step(self, x: Tensor, cache: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        cache.index_copy_(0, row, self.project(x) * self.scale)
        return torch.softmax(cache, -1).sum(0), cache


def make(device: str, folder: Path, **options: Any) -> tuple[Decoder, CachedFunction]:
    model = Decoder(device)
    return model, airgraph.inference.cache_compile(model.step, cache_dir=folder, options=options, strict=True)


def inputs(device: str, rows: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(1, 8).to(device), torch.zeros(rows, 8, device=device), torch.tensor([2], device=device)


def check(model: Decoder, step: CachedFunction, x: Tensor, cache: Tensor, row: Tensor) -> None:
    expected_cache = cache.clone()
    out, same = step(x, cache, row)
    expected, _ = model.step(x, expected_cache, row)
    assert same is cache
    torch.testing.assert_close(out.cpu(), expected.cpu())
    torch.testing.assert_close(cache.cpu(), expected_cache.cpu())


def test_it_is_traced_once_and_replayed(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, step = make(device, tmp_path)
    x, cache, row = inputs(device)
    for _ in range(3):
        check(model, step, x, cache, row)
    model, step = make(device, tmp_path)
    monkeypatch.setattr(torch, "compile", None)
    for rows in (4, 6, 4):
        check(model, step, *inputs(device, rows))
    assert counters()["eager_calls"] == 0 and counters()["replays"] == 6
    (file,) = step.files
    assert f"on {device}" in airgraph.inference.readable_cache(file, print_output=False)


def test_weights_that_are_replaced_are_used(device: str, tmp_path: Path) -> None:
    model, step = make(device, tmp_path)
    x, cache, row = inputs(device)
    check(model, step, x, cache, row)
    model.project.weight = nn.Parameter(torch.randn(8, 8).to(device), requires_grad=False)
    check(model, step, x, cache, row)
    model.scale = 3.0
    check(model, step, x, cache, row)
    assert len(step.files) == 2
    moved = [row["reason"] for row in report()["graphs"] if "self.project.weight, static) was at" in row["reason"]]
    assert len(moved) == (device != "cpu")


def test_an_address_that_must_not_move(device: str, tmp_path: Path) -> None:
    model, step = make(device, tmp_path, on_input_move="error")
    x, cache, row = inputs(device)
    check(model, step, x, cache, row)
    with pytest.raises(InputMoved, match=r"cache, mutated\) was at"):
        step(x, torch.zeros_like(cache), row)
    check(model, step, x, cache, row)


def test_a_cache_in_another_form_at_the_same_address(device: str, tmp_path: Path) -> None:
    model, step = make(device, tmp_path)
    x, cache, row = inputs(device, 8)
    for rows in (8, 5, 8):
        check(model, step, x, cache[:rows], row)


def test_outputs_that_are_held_survive(device: str, tmp_path: Path) -> None:
    model, step = make(device, tmp_path)
    _, cache, row = inputs(device)
    held, expected = [], []
    for _ in range(3):
        x = torch.randn(1, 8).to(device)
        expected.append(model.step(x, cache.clone(), row)[0])
        held.append(step(x, cache, row)[0])
    for ours, theirs in zip(held, expected, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs.cpu())


def test_what_cannot_be_cached_runs_all_the_same(device: str, tmp_path: Path) -> None:
    def first(x: Tensor) -> Tensor:
        return x[1:].view(torch.int32)

    call = airgraph.inference.cache_compile(first, cache_dir=tmp_path)
    x = torch.randn(4).to(device)
    with pytest.warns(UserWarning, match="first is not cached but compiled at every start: an output is a view"):
        out = call(x)
    assert out.data_ptr() == x[1:].data_ptr()


def asks_for_its_type(x: Tensor) -> Tensor:
    return x + 1 if type(x) is Tensor else x


def part(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[:2], x + 1


def reshaped(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.view(-1, 2), x.sum(0)


def split(x: Tensor) -> tuple[Tensor, ...]:
    first, second, rest = x.split([2, 1, x.shape[0] - 3])
    return rest, first, second * 2


def argument(x: Tensor) -> tuple[Tensor, torch.Size, Tensor]:
    return x, x.shape, x * 2


def model_output(x: Tensor) -> Any:
    return BaseModelOutput(last_hidden_state=x * 2)


def of_a_global(x: Tensor) -> Tensor:
    return x * TABLE["row"]


TABLE: dict[str, Tensor] = {}


@torch.no_grad()
@pytest.mark.parametrize(
    "function",
    [asks_for_its_type, part, reshaped, split, argument, model_output, of_a_global],
    ids=lambda f: f.__name__,
)
def test_what_programs_commonly_do_is_cached(function: Callable[..., Any], device: str, tmp_path: Path) -> None:
    TABLE["row"] = torch.full((4,), 3.0, device=device)
    for start in range(2):
        call = airgraph.inference.cache_compile(function, cache_dir=tmp_path, strict=True)
        for rows in (5, 6):
            x = torch.randn(rows, 4, device=device)
            made, expected = call(x), function(x)
            torch.testing.assert_close(tuple_of(made), tuple_of(expected))
            assert type(made) is type(expected)
            if function in (part, reshaped, argument):
                # The caller's own memory.
                assert made[0].data_ptr() == x.data_ptr()
        assert call.counts().traces == (1 if start == 0 else 0)


def tuple_of(result: Any) -> Any:
    return tuple(result.values()) if isinstance(result, dict) else result
