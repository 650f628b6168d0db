"""Ranks that communicate within a graph run a key alike: all replay it, or all run it eagerly."""

from __future__ import annotations

from typing import Any

import torch

from airgraph.capture.key import GraphKey
from airgraph.capture.ledger import ledger
from airgraph.program.collectives import NAMESPACE, group_of, groups_of
from airgraph.program.program import CaptureProgram
from airgraph.torch_internals.groups import before_shutdown

__all__ = ["Ranks"]


class Ranks:
    """What the ranks of a program's groups have agreed upon, by key.

    A rank meets a key when it first calls the program with it; as with any collective, all ranks of the groups must.
    """

    def __init__(self, groups: list[Any], device: torch.device) -> None:
        self._groups = groups
        self._device = device
        self._settled: set[GraphKey] = set()

    @classmethod
    def of(cls, program: CaptureProgram) -> Ranks | None:
        """None for a program that communicates with nobody."""
        groups = groups_of(program.gm.graph)
        if not groups:
            return None
        before_shutdown(_drop_graphs_of)
        return cls(groups, program.device)

    def are_there(self) -> bool:
        """Whether no group has ended, or has not been made yet."""
        return all(group_of(str(group)) is not None for group in self._groups)

    def have(self, group: str) -> bool:
        """Whether a group of this name is one of theirs."""
        return group in map(str, self._groups)

    def forget(self) -> None:
        """Nothing is agreed any more."""
        self._settled.clear()

    def is_settled(self, key: GraphKey) -> bool:
        return key in self._settled

    def settle(self, key: GraphKey, can_capture: bool) -> bool:
        """Whether all ranks can capture a key: the least of what each says, a collective in each group."""
        operators = getattr(torch.ops, NAMESPACE)
        agreed = torch.tensor([can_capture], dtype=torch.int32, device=self._device)
        with torch.no_grad():
            for group in self._groups:
                agreed = operators.wait_tensor(operators.all_reduce(agreed, "min", group))
        self._settled.add(key)
        return bool(agreed.item())


def _drop_graphs_of(group: str) -> None:
    """A communicator of NCCL waits at its end until no graph is left that has captured a collective of it."""
    for graphed in ledger.callables_alive():
        graphed.end_group(group)
