"""What may differ from process to process: variables of the environment, groups of processes, the order of sets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airgraph.errors import CacheError, Unwritable
from airgraph.program.collectives import group_of, ranks_of

__all__ = ["Process"]

_PROBE = "airgraph"


@dataclass(frozen=True, slots=True)
class Process:
    """environment: the variables that tracing looked up, None where there was none. hashes: the hash of a certain text,
    if the order of a set may have decided something. groups: ranks of the groups, by name, that the graph communicates
    in."""

    environment: Mapping[str, str | None]
    hashes: int | None = None
    groups: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @classmethod
    def now(
        cls, environment: Mapping[str, str | None], *, depends_on_hashes: bool, groups: Iterable[str] = ()
    ) -> Process:
        """Raises Unwritable for a group that no process of this name is in."""
        ranks = {}
        for name in groups:
            of_group = ranks_of(name)
            if of_group is None:
                raise Unwritable(f"it communicates in a group {name!r} that this process is not in")
            ranks[name] = of_group
        return cls(dict(sorted(environment.items())), hash(_PROBE) if depends_on_hashes else None, ranks)

    def why_other(self) -> str | None:
        """What is another value in this process, in words, or None."""
        for name, value in self.environment.items():
            now = os.environ.get(name)
            if now != value:
                return f"the environment variable {name}: expected {value!r}, got {now!r}"
        for name, ranks in self.groups.items():
            of_group = ranks_of(name)
            if of_group != ranks:
                return f"the ranks of group {name!r}: expected {ranks}, got {of_group}"
        return None

    def groups_now(self) -> Callable[[], bool]:
        """Asks whether all groups are still the objects that they are now."""
        held = [(name, group_of(name)) for name in self.groups]
        return lambda: all(group_of(name) is group for name, group in held)

    def why_never(self) -> str | None:
        """The same of what stays as it is as long as a process lives."""
        if self.hashes is None or self.hashes == hash(_PROBE):
            return None
        return "it iterates over a set of texts, whose order differs by PYTHONHASHSEED"

    def to_data(self) -> dict[str, Any]:
        return {"environment": dict(self.environment), "hashes": self.hashes, "groups": dict(self.groups)}

    @classmethod
    def from_data(cls, data: Any) -> Process:
        environment, hashes, groups = dict(data["environment"]), data["hashes"], dict(data["groups"])
        texts = all(type(name) is str and type(value) in (str, type(None)) for name, value in environment.items())
        if not texts or type(hashes) not in (int, type(None)):
            raise CacheError("variables of the environment are texts, and a hash is a number")
        for ranks in groups.values():
            if type(ranks) is not list or not all(type(rank) is int for rank in ranks):
                raise CacheError("a group of processes has a list of ranks")
        for name in environment:
            # Raises for what no variable can be called.
            os.fsencode(name)
        return cls(environment, hashes, groups)
