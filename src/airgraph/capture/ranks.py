"""Ranks that communicate within a graph run a key alike: all replay it, or all run it eagerly."""

from __future__ import annotations

import enum
from collections import Counter
from typing import Any

import torch

from airgraph.capture.key import GraphKey
from airgraph.capture.ledger import ledger
from airgraph.program.collectives import NAMESPACE, begun, collectives_in, group_of, groups_of
from airgraph.program.program import CaptureProgram
from airgraph.torch_internals.groups import before_shutdown, is_ending

__all__ = ["OTHERS_CANNOT", "Ranks", "Vote"]

OTHERS_CANNOT = "another rank cannot capture it, and ranks run a key alike"
# Of calls of one key that some rank did not capture but might the next time, before all run it eagerly for good.
_MOST_PUT_OFF = 8


class Vote(enum.IntEnum):
    """What a rank says of capturing a key, and what all do: the least of what each says."""

    NEVER = 0
    # Such as where the call raised: this one is not replayed, the next one captures.
    NOT_NOW = 1
    CAPTURED = 2


class Ranks:
    """What the ranks of a program's groups have agreed upon, by key.

    A rank meets a key when it first calls the program with it; as with any collective, all ranks of the groups must.
    """

    def __init__(self, groups: list[Any], collectives: int, device: torch.device) -> None:
        """collectives: how many the program begins."""
        self.groups = groups
        self._collectives = collectives
        self._device = device
        # What all do, and what this one said.
        self._settled: dict[GraphKey, tuple[Vote, Vote]] = {}
        self._put_off: Counter[GraphKey] = Counter()

    @classmethod
    def of(cls, program: CaptureProgram) -> Ranks | None:
        """None for a program that communicates with nobody."""
        groups = groups_of(program.gm.graph)
        if not groups:
            return None
        before_shutdown(_drop_graphs_of)
        return cls(groups, collectives_in(program.gm.graph), program.device)

    def are_there(self) -> bool:
        """Whether no group has ended, or is about to, or has not been made yet."""
        found = [group_of(str(group)) for group in self.groups]
        return all(group is not None and not is_ending(group) for group in found)

    def have(self, group: str) -> bool:
        """Whether a group of this name is one of theirs."""
        return group in map(str, self.groups)

    def forget(self) -> None:
        """Nothing is agreed any more."""
        self._settled.clear()
        self._put_off.clear()

    def is_settled(self, key: GraphKey) -> bool:
        return key in self._settled

    def expect_all(self) -> None:
        """From now on this thread runs the program."""
        begun.number = 0

    def have_all_begun(self) -> bool:
        """Whether it has come past the program's last collective, and what it begins next is what comes after."""
        return begun.number >= self._collectives

    def refuse(self, key: GraphKey) -> bool:
        """Whether it was settled that all run a key eagerly; a reset on one of them changes nothing of that."""
        return self._settled.get(key, (None,))[0] is Vote.NEVER

    def why_not(self, key: GraphKey) -> str:
        """Why this rank runs a key eagerly which it has captured, or might."""
        if self._put_off[key] >= _MOST_PUT_OFF:
            return f"ranks run a key alike, and {_MOST_PUT_OFF} calls were not captured on all of them"
        if self._settled[key][1] is Vote.NEVER:
            return "this rank could not capture it before, and ranks run a key alike"
        return OTHERS_CANNOT

    def settle(self, key: GraphKey, vote: Vote) -> Vote:
        """What all ranks do with a key: collectives in each group. Asked again where it is NOT_NOW.

        Each further pass carries what was said to the neighbours of neighbours, whatever the groups have in common.
        """
        operators = getattr(torch.ops, NAMESPACE)
        least = torch.tensor([vote], dtype=torch.int32, device=self._device)
        with torch.no_grad():
            for group in self.groups * len(self.groups):
                least = operators.wait_tensor(operators.all_reduce(least, "min", group))
        agreed = Vote(int(least.item()))
        if agreed is Vote.NOT_NOW:
            self._put_off[key] += 1
            if self._put_off[key] >= _MOST_PUT_OFF:
                agreed = Vote.NEVER
        if agreed is not Vote.NOT_NOW:
            self._settled[key] = agreed, vote
        return agreed


def _drop_graphs_of(group: str, waits: bool) -> None:
    """A communicator of NCCL waits at its end until no graph is left that has captured a collective of it."""
    for graphed in ledger.callables_alive():
        graphed.end_group(group, waits=waits)
