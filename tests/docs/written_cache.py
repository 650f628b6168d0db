"""A cache with one graph, to be changed and read; what is cached in it, and classes that its files may name."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from airgraph.cache.format.signed import signed_text
from airgraph.errors import CacheError

sys.path.insert(0, str(Path(__file__).parents[1] / "cache"))

from cached_functions import cached

__all__ = ["Cache", "Counter", "Noisy", "Pair", "cached", "data_of", "step"]


class Counter:
    def __init__(self) -> None:
        self.count = 0


@dataclasses.dataclass
class Pair:
    first: Any
    second: Any


@dataclasses.dataclass
class Noisy:
    value: Any

    def __post_init__(self) -> None:
        raise AssertionError("a file has run this")


def data_of(file: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(file.read_text().partition("\n")[2])
    return data


def step(x: Tensor, cache: Tensor, counter: Counter, factor: int) -> Any:
    cache.add_(x.sum(0))
    counter.count += x.shape[0]
    return {"y": x * factor, "cache": cache}


class Cache:
    """A copy of a cache with one graph, as another process finds it; tracing ends in an error."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (self.file,) = root.rglob("*.airgraph")
        self.key = root / ".key"

    def change(self, change: Callable[[dict[str, Any]], Any]) -> None:
        """Signed as the folder's files are."""
        data = data_of(self.file)
        change(data)
        self.sign(data)

    def sign(self, data: Any) -> None:
        self.file.write_text(signed_text(data, self.key.read_bytes()))

    def sign_body(self, body: str) -> None:
        head = self.file.read_text().partition("\n")[0].rpartition(" ")[0]
        digest = hmac.new(self.key.read_bytes(), body.encode(), hashlib.sha256).hexdigest()
        self.file.write_text(f"{head} {digest}\n{body}\n")

    def call(self) -> None:
        """Serves a call from the file, or raises."""
        call, cache, counter = cached(step, self.root), torch.zeros(3), Counter()
        x = torch.ones(4, 3)
        try:
            result = call(x, cache, counter, 2)
        except CacheError:
            assert not cache.any() and counter.count == 0
            raise
        assert call.files == [self.file] and counter.count == 4
        torch.testing.assert_close((result["y"], result["cache"]), (x * 2, x.sum(0)))
