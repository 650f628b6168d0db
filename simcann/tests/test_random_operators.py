# SPDX-License-Identifier: Apache-2.0
"""Random operators: the seed decides, the distribution is right, a captured graph draws anew at every replay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

COUNT = 4096


def uniform(dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(COUNT, dtype=dtype, device="npu").uniform_(2, 4)


def normal(dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(COUNT, dtype=dtype, device="npu").normal_(3, 2)


def at_mean_tensor(dtype: torch.dtype) -> torch.Tensor:
    return torch.normal(torch.full((COUNT,), 3.0, dtype=dtype, device="npu"), 2.0)


def at_std_tensor(dtype: torch.dtype) -> torch.Tensor:
    return torch.normal(3.0, torch.full((COUNT,), 2.0, dtype=dtype, device="npu"))


def at_both_tensors(dtype: torch.dtype) -> torch.Tensor:
    full = torch.full((COUNT,), 3.0, dtype=dtype, device="npu")
    return torch.normal(full, full - 1)


def at_numbers(dtype: torch.dtype) -> torch.Tensor:
    return torch.normal(3.0, 2.0, (COUNT,), dtype=dtype, device="npu")


def bernoulli(dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(COUNT, dtype=dtype, device="npu").bernoulli_(0.25)


def bernoulli_of_tensor(dtype: torch.dtype) -> torch.Tensor:
    return torch.bernoulli(torch.full((COUNT,), 0.25, dtype=dtype, device="npu"))


def dropout(dtype: torch.dtype) -> torch.Tensor:
    return F.dropout(torch.ones(COUNT, dtype=dtype, device="npu"), 0.25)


def integers(dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(2, 5, (COUNT,), device="npu").to(dtype)


def exponential(dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(COUNT, dtype=dtype, device="npu").exponential_(0.5)


def multinomial(dtype: torch.dtype) -> torch.Tensor:
    return torch.multinomial(torch.arange(3.0, device="npu"), COUNT, True).to(dtype)


# mean and standard deviation
DISTRIBUTIONS: dict[Callable[[torch.dtype], torch.Tensor], tuple[float, float]] = {
    uniform: (3, 0.577),
    normal: (3, 2),
    at_mean_tensor: (3, 2),
    at_std_tensor: (3, 2),
    at_both_tensors: (3, 2),
    at_numbers: (3, 2),
    bernoulli: (0.25, 0.433),
    bernoulli_of_tensor: (0.25, 0.433),
    dropout: (1, 0.577),
    integers: (3, 0.816),
    exponential: (2, 2),
    multinomial: (1.667, 0.471),
}
# The forms for which torch_npu has an operator that reads its seed on the device.
CAPTURABLE = (uniform, normal, dropout, integers, multinomial)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("draw", DISTRIBUTIONS)
def test_distribution(draw: Callable[[torch.dtype], torch.Tensor], dtype: torch.dtype) -> None:
    torch.npu.manual_seed(5)
    values = draw(dtype).float().cpu()
    mean, deviation = DISTRIBUTIONS[draw]
    assert values.mean() == pytest.approx(mean, abs=0.15)
    assert values.std() == pytest.approx(deviation, abs=0.15)


@pytest.mark.parametrize("draw", DISTRIBUTIONS)
def test_seed_and_position_decide(draw: Callable[[torch.dtype], torch.Tensor]) -> None:
    torch.npu.manual_seed(5)
    first, second = draw(torch.float32), draw(torch.float32)
    torch.npu.manual_seed(5)
    assert torch.equal(draw(torch.float32), first)
    assert not torch.equal(first, second)
    torch.npu.manual_seed(6)
    assert not torch.equal(draw(torch.float32), first)


@pytest.mark.parametrize("draw", CAPTURABLE)
def test_replays_draw_what_eager_calls_would(draw: Callable[[torch.dtype], torch.Tensor]) -> None:
    draw(torch.float32)  # What a first call creates must not be created during the capture.
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        captured = draw(torch.float32)
    torch.npu.manual_seed(5)
    replayed = []
    for _ in range(2):
        graph.replay()
        replayed.append(captured.clone())
    assert not torch.equal(*replayed)
    torch.npu.manual_seed(5)
    for values in replayed:
        assert torch.equal(draw(torch.float32), values)


def test_values_do_not_depend_on_strides() -> None:
    torch.npu.manual_seed(5)
    dense = torch.empty(6, 4, device="npu").uniform_()
    torch.npu.manual_seed(5)
    strided = torch.empty(4, 6, device="npu").t().uniform_()
    assert torch.equal(dense, strided)


def test_randperm_is_a_permutation() -> None:
    torch.npu.manual_seed(5)
    order = torch.randperm(50, device="npu")
    assert sorted(order.tolist()) == list(range(50))
    assert order.tolist() != list(range(50))


def test_multinomial_without_replacement_repeats_nothing() -> None:
    drawn = torch.multinomial(torch.ones(3, 20, device="npu"), 20)
    assert torch.equal(drawn.sort(-1).values.cpu(), torch.arange(20).expand(3, 20))
