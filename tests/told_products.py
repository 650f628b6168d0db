"""Products whose times a test decides, of a small model, and what the report says that they were computed by."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import airgraph
from airgraph.runtime.cpu import products

__all__ = ["Net", "compiled", "told", "ways"]


def told(monkeypatch: pytest.MonkeyPatch, **times: float) -> list[int]:
    """Measurements say this from now on; the list gets an entry for each."""
    asked: list[int] = []

    def measure(found: Any, ways: Any, view: Any, readable: Any, threads: int) -> dict[str, float]:
        asked.append(len(found))
        return {way.value: times[way.value] for way in ways}

    monkeypatch.setattr(products, "_measure", measure)
    return asked


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(128, 256), torch.nn.Linear(256, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.nn.functional.relu(self.up(x)))


def compiled(net: torch.nn.Module, **options: Any) -> Any:
    return torch.compile(net, backend="airgraph", options=options, dynamic=False)


def ways() -> list[str]:
    return [row["way"] for row in airgraph.explain().to_dict()["products"]]
