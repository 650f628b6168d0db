"""What may differ from process to process: variables of the environment, and the order of sets of texts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airgraph.errors import CacheError

__all__ = ["Process"]

_PROBE = "airgraph"


@dataclass(frozen=True, slots=True)
class Process:
    """environment: the variables that tracing looked up, None where there was none. hashes: the hash of a certain text,
    if the order of a set may have decided something."""

    environment: Mapping[str, str | None]
    hashes: int | None = None

    @classmethod
    def now(cls, environment: Mapping[str, str | None], *, depends_on_hashes: bool) -> Process:
        return cls(dict(sorted(environment.items())), hash(_PROBE) if depends_on_hashes else None)

    def why_other(self) -> str | None:
        """What is another value in this process, in words, or None."""
        for name, value in self.environment.items():
            now = os.environ.get(name)
            if now != value:
                return f"the environment variable {name}: expected {value!r}, got {now!r}"
        return None

    def why_never(self) -> str | None:
        """The same of what stays as it is as long as a process lives."""
        if self.hashes is None or self.hashes == hash(_PROBE):
            return None
        return "it iterates over a set of texts, whose order differs by PYTHONHASHSEED"

    def to_data(self) -> dict[str, Any]:
        return {"environment": dict(self.environment), "hashes": self.hashes}

    @classmethod
    def from_data(cls, data: Any) -> Process:
        environment, hashes = dict(data["environment"]), data["hashes"]
        texts = all(type(name) is str and type(value) in (str, type(None)) for name, value in environment.items())
        if not texts or type(hashes) not in (int, type(None)):
            raise CacheError("variables of the environment are texts, and a hash is a number")
        for name in environment:
            # Raises for what no variable can be called.
            os.fsencode(name)
        return cls(environment, hashes)
