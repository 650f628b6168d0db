"""Weights in huge pages: who reads them from one end to the other at each step has fewer addresses to translate."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from airgraph.errors import OptionError
from airgraph.program.tensor_parts import plain_parts
from airgraph.runtime.engine.loading import engine
from airgraph.torch_internals.fake_tensors import FakeTensor
from airgraph.torch_internals.storages import storage_id

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PlacedWeights", "place_weights"]

_MAPPINGS = Path("/proc/self/smaps")


@dataclass(frozen=True, slots=True)
class PlacedWeights:
    """What became of a model's weights.

    nbytes: of the memory that was moved. huge_nbytes: how much of it the kernel has in huge pages, by its own account;
    0 where it does not tell. left: for each tensor that stays where it was, by its name, why.
    """

    nbytes: int
    huge_nbytes: int
    left: Mapping[str, str]

    def __str__(self) -> str:
        text = f"{self.nbytes / 2**20:.1f} MiB of weights placed, {self.huge_nbytes / 2**20:.1f} MiB in huge pages"
        return "; ".join((text, *(f"{name} stays: {reason}" for name, reason in self.left.items())))


def place_weights(model: torch.nn.Module) -> PlacedWeights:
    """Move the parameters and buffers of a model on the CPU into one block of huge pages, in the order of its modules.

    The tensors stay the objects that they are, and all that lie over the same storage follow, so tied weights stay
    tied; a NumPy array or a file that shared its memory with a weight no longer does. The old memory is given back,
    but where NumPy may look at it; no other library may (DLPack). The block goes with the last of its weights.

    Graphs that were captured before are captured anew when they are called; a replay of a `CPUGraph` raises
    ReplayError. Call it once the weights have their final type, and not while the model runs.

    Linux gives huge pages where `/sys/kernel/mm/transparent_hugepage/enabled` says `madvise` or `always`; elsewhere the
    weights move all the same, and the result says so. Raises OptionError for what is no module, and RuntimeError where
    there is no memory, in which case nothing has moved.
    """
    if not isinstance(model, torch.nn.Module):
        raise OptionError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    left: dict[str, str] = {}
    moved: dict[int, torch.Tensor] = {}
    for name, tensor in _weights(model):
        reason = _why_not(tensor)
        if reason is not None:
            left[name] = reason
        elif tensor.untyped_storage().nbytes() > 0:
            moved.setdefault(storage_id(tensor), tensor)
    placed = engine().move_into_huge_pages(list(moved.values()))
    if placed is None:
        return PlacedWeights(0, 0, {name: "the engine in Python cannot move memory" for name, _ in _weights(model)})
    return PlacedWeights(placed[1], _huge_nbytes(*placed), left)


def _weights(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in chain(model.named_parameters(), model.named_buffers()):
        for path, part in plain_parts(tensor):
            yield ".".join((name, *path)), part


def _why_not(tensor: torch.Tensor) -> str | None:
    if isinstance(tensor, FakeTensor) or tensor.device.type != "cpu":
        return f"it is {'a fake tensor' if isinstance(tensor, FakeTensor) else f'on {tensor.device}'}"
    if tensor.layout is not torch.strided:
        return f"its layout is {tensor.layout}"
    if tensor.is_shared():
        return "other processes share its memory"
    if tensor.is_pinned():
        return "its memory is pinned"
    return None


def _huge_nbytes(begin: int, nbytes: int) -> int:
    """Of a range of memory the part in huge pages, at most."""
    try:
        lines = _MAPPINGS.read_text().splitlines()
    except OSError:
        return 0
    found, is_within = 0, False
    for line in lines:
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            first, last = (int(each, 16) for each in bounds.groups())
            is_within = first < begin + nbytes and begin < last
        elif is_within and line.startswith("AnonHugePages:"):
            found += int(line.split()[1]) << 10
    return min(found, nbytes)
