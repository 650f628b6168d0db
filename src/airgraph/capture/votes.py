"""What ranks say of keys to one another where none has to wait for another's word."""

from __future__ import annotations

from collections.abc import Sequence

from airgraph.capture.key import GraphKey
from airgraph.program.collectives import ranks_of
from airgraph.torch_internals.groups import default_store

__all__ = ["Votes"]

_CAPTURED, _REFUSED = b"captured", b"refused"
_EVERY_KEY = "every key"
# Of calls of a key that this rank has captured, before it is taken that no other one has refused it.
_MOST_LOOKS = 8


class Votes:
    """By the store that the groups were made with: a rank notes there what it can capture, and reads of others.

    For devices on which a rank may replay a collective that another runs eagerly, so that some calls may pass until all
    do alike, and ranks need not have the same keys.
    """

    def __init__(self, program: str, groups: Sequence[object]) -> None:
        """program: what it is called on all ranks, and only there where its arguments are of the same forms."""
        self._program = program
        self._groups = [str(group) for group in groups]
        # By key, how often this rank has looked since it said that it can.
        self._looks: dict[GraphKey, int] = {}
        self._closed: set[GraphKey] = set()
        self._refused: set[GraphKey] = set()
        self._refuses_all = False
        # How often the groups have ended, which all ranks see alike. The store may outlive them.
        self._ended = 0

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
        if not self._note(str(key), _CAPTURED if can_capture else _REFUSED):
            self._closed.add(key)

    def refuse_all(self) -> None:
        """This rank captures nothing of the program."""
        if not self._refuses_all:
            self._refuses_all = True
            self._note(_EVERY_KEY, _REFUSED)

    def is_refused(self, key: GraphKey) -> bool:
        """Whether another rank has said that it cannot capture a key which this one has."""
        if key not in self._looks or key in self._closed:
            return key in self._refused
        self._looks[key] += 1
        others = self._others()
        said = self._said_by(others, str(key)) + self._said_by(others, _EVERY_KEY)
        if _REFUSED in said:
            self._refused.add(key)
            # To those that share a group with this rank alone.
            self._note(str(key), _REFUSED)
        if key in self._refused or len(said) >= len(others) or self._looks[key] >= _MOST_LOOKS:
            self._closed.add(key)
        return key in self._refused

    def forget(self) -> None:
        """As if nobody had said anything: a group has ended."""
        self._looks.clear()
        self._closed.clear()
        self._refused.clear()
        self._refuses_all = False
        self._ended += 1

    def _note(self, what: str, vote: bytes) -> bool:
        """False where nothing can be noted."""
        store = default_store()
        try:
            if store is not None:
                store.set(self._name(what, _own_rank()), vote.decode())
        except RuntimeError:
            # A store that keeps nothing, or whose server has gone.
            return False
        return store is not None

    def _said_by(self, ranks: Sequence[int], what: str) -> list[bytes]:
        store = default_store()
        try:
            names = [self._name(what, rank) for rank in ranks]
            return [store.get(name) for name in names if store.check([name])] if store is not None else []
        except RuntimeError:
            return []

    def _others(self) -> list[int]:
        found = {rank for group in self._groups for rank in ranks_of(group) or ()}
        return sorted(found - {_own_rank()})

    def _name(self, what: str, rank: int) -> str:
        return f"airgraph/{self._ended}/{self._program}/{what}/{rank}"


def _own_rank() -> int:
    from torch import distributed

    return distributed.get_rank()
