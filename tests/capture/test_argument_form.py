"""A recapture for arguments of another form says which form, from what to what."""

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

import airgraph
from airgraph.capture.argument_form import ArgumentForm

sys.path.insert(0, str(Path(__file__).parents[1] / "cache"))
from cached_functions import cached


def doubled(x: Tensor) -> Tensor:
    return x * 2


@torch.no_grad()
def test_rows_of_a_cached_function_tell_sizes_apart(tmp_path: Path) -> None:
    call = cached(doubled, tmp_path)
    for size in (3, 4, 5, 3):
        call(torch.ones(size))
    rows = airgraph.explain().to_dict()["graphs"]
    assert [row["reason"] for row in rows] == [
        "new key",
        "input 0 (x): shape (3,) became (4,)",
        "input 0 (x): shape (4,) became (5,)",
    ]


@pytest.mark.parametrize(
    ("other", "change"),
    [
        (lambda: torch.ones(2, 4), "shape (2, 3) became (2, 4)"),
        (lambda: torch.ones(2, 3, dtype=torch.float64), "dtype torch.float32 became torch.float64"),
        (lambda: torch.ones(2, 3, device="meta"), "device cpu became meta"),
        (lambda: torch.ones(3, 2).t(), "strides (3, 1) became (1, 2)"),
        (lambda: torch.ones(7)[1:].view(2, 3), "offset 0 became 1"),
        (lambda: 3, "its storage, or a lazy conjugation or negation, is another"),
    ],
    ids=["shape", "dtype", "device", "strides", "offset", "other"],
)
def test_the_first_difference_is_named(other, change: str) -> None:
    form = ArgumentForm.of(torch.ones(2, 3))
    assert form is not None and form.change(other()) == change
