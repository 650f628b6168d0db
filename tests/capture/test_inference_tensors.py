"""Inference tensors are written in inference mode alone, as in eager."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from doors import both_doors, through


def _add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * y


@both_doors
def test_outside_of_it_none_is_written(door: str, tmp_path: Path) -> None:
    compiled = through(door, _add, tmp_path)
    with torch.inference_mode():
        x = torch.zeros(4)
    y = torch.ones(4)
    for _ in range(2):
        with torch.no_grad(), pytest.raises(RuntimeError, match=r"(?s)[Ii]nference tensor"):
            compiled(x, y)
        assert torch.equal(x, torch.zeros(4))


@both_doors
def test_what_was_captured_for_another_tensor_does_not_write_it(door: str, tmp_path: Path) -> None:
    """Neither for a usual tensor nor for one that may be written in this mode."""
    compiled = through(door, _add, tmp_path)
    usual, y = torch.zeros(4), torch.ones(4)
    with torch.inference_mode():
        x = torch.zeros(4)
        for call in range(3):
            assert torch.equal(compiled(x, y), torch.full((4,), call + 1.0))
    with torch.no_grad():
        for call in range(3):
            assert torch.equal(compiled(usual, y), torch.full((4,), call + 1.0))
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"(?s)[Ii]nference tensor"):
                compiled(x, y)
    assert torch.equal(x, torch.full((4,), 3.0)) and torch.equal(usual, torch.full((4,), 3.0))
    with torch.inference_mode():
        assert torch.equal(compiled(x, y), torch.full((4,), 4.0))
