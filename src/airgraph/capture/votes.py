"""What ranks say of keys to one another where none has to wait for another's word."""

from __future__ import annotations

from airgraph.capture.key import GraphKey
from airgraph.program.collectives import ranks_of
from airgraph.torch_internals.groups import default_store

__all__ = ["Votes"]

# Of calls of a key that this rank has captured, before it is taken that no other one has refused it.
_MOST_LOOKS = 8


class Votes:
    """By the store that the groups were made with: a rank notes there what it can capture, and reads of others.

    For devices on which a rank may replay a collective that another runs eagerly, so that some calls may pass until all
    do alike, and ranks need not have the same keys.
    """

    def __init__(self, program: str, groups: list[object]) -> None:
        """program: a name that it has on all ranks."""
        self._program = program
        self._groups = [str(group) for group in groups]
        # By key, how often this rank has looked since it said that it can.
        self._looks: dict[GraphKey, int] = {}
        self._closed: set[GraphKey] = set()
        self._refused: set[GraphKey] = set()

    def is_open(self, key: GraphKey) -> bool:
        """Whether another rank may still refuse a key."""
        return key not in self._closed

    def cast(self, key: GraphKey, *, can_capture: bool) -> None:
        """What this rank can do, once a key."""
        if key in self._closed or key in self._looks:
            return
        if can_capture:
            self._looks[key] = 0
        else:
            self._closed.add(key)
        store = default_store()
        try:
            if store is not None:
                store.set(self._name(key, _own_rank()), "captured" if can_capture else "refused")
        except RuntimeError:
            # A store that keeps nothing, or whose server has gone.
            self._closed.add(key)

    def is_refused(self, key: GraphKey) -> bool:
        """Whether another rank has said that it cannot capture a key which this one has."""
        if key not in self._looks or key in self._closed:
            return key in self._refused
        self._looks[key] += 1
        others = self._others()
        store = default_store()
        said = []
        try:
            for name in (self._name(key, rank) for rank in others):
                if store is not None and store.check([name]):
                    said.append(store.get(name))
        except RuntimeError:
            self._closed.add(key)
            return False
        if b"refused" in said:
            self._refused.add(key)
        if key in self._refused or len(said) == len(others) or self._looks[key] >= _MOST_LOOKS:
            self._closed.add(key)
        return key in self._refused

    def forget(self) -> None:
        """As if nobody had said anything: the groups have ended."""
        self._looks.clear()
        self._closed.clear()
        self._refused.clear()

    def _others(self) -> list[int]:
        found = {rank for group in self._groups for rank in ranks_of(group) or ()}
        return sorted(found - {_own_rank()})

    def _name(self, key: GraphKey, rank: int) -> str:
        return f"airgraph/{self._program}/{','.join(self._groups)}/{key}/{rank}"


def _own_rank() -> int:
    from torch import distributed

    return distributed.get_rank()
