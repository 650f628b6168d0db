"""By what the graphs of a folder differ: which of them cannot serve a call is known without opening them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airgraph.cache.format.guard import Read
from airgraph.cache.format.guards import UNIQUE_KINDS, guard_from
from airgraph.errors import CacheError

__all__ = ["Index"]

# What a guard that somebody made up may end in.
_MALFORMED = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError, CacheError)


@dataclass(frozen=True, slots=True)
class Index:
    """guards: for each file's name those that some other file has otherwise, as `Guard.to_data` gives them.

    A file that it does not know, or not by this size, is to be opened. It only saves work: a file that it does not rule
    out is checked itself, and one that it rules out wrongly is traced again.
    """

    guards: Mapping[str, list[Any]]
    sizes: Mapping[str, int]

    @classmethod
    def of(cls, files: Mapping[str, Mapping[str, Any]], sizes: Mapping[str, int]) -> Index:
        """files: what they say, by name."""
        found = {name: dict(_one_of_a_path(data)) for name, data in files.items()}
        seen: dict[Any, set[str]] = {}
        for each in found.values():
            for place, guard in each.items():
                seen.setdefault(place, set()).add(repr(guard))
        differing = {place for place, forms in seen.items() if len(forms) > 1}
        return cls(
            {name: [each[place] for place in each if place in differing] for name, each in found.items()},
            {name: sizes[name] for name in found},
        )

    def to_data(self) -> dict[str, Any]:
        return {"guards": self.guards, "sizes": self.sizes}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Index:
        """Passes over what is malformed."""
        guards, sizes = data.get("guards"), data.get("sizes")
        if not isinstance(guards, dict) or not isinstance(sizes, dict):
            return cls({}, {})
        known = {name: each for name, each in guards.items() if isinstance(each, list) and name in sizes}
        return cls(known, {name: sizes[name] for name in known})

    def ruled_out(self, name: str, size: int, read: Read) -> str | None:
        """Why a file cannot serve a call, in words; None where it may."""
        if self.sizes.get(name) != size:
            return None
        for each in self.guards[name]:
            try:
                if (reason := guard_from(each).broken(read)) is not None:
                    return reason
            except _MALFORMED:
                continue
        return None


def _one_of_a_path(data: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], list[Any]]]:
    guards = data.get("guards")
    for each in guards if isinstance(guards, list) else ():
        if isinstance(each, list) and len(each) == 3 and each[0] in UNIQUE_KINDS:
            yield (each[0], str(each[1])), each
