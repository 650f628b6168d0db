"""What a cached graph is only good for, part by part: versions, options, passes and code."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airgraph.errors import CacheError

__all__ = ["Fingerprint", "digest_of"]

_DIGEST = re.compile(r"[0-9a-f]{32}")


def digest_of(text: str) -> str:
    """32 hexadecimal digits; empty for an empty text."""
    return hashlib.sha256(text.encode()).hexdigest()[:32] if text else ""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Named parts, each a short text or the digest of a long one. A graph made under another one is never used."""

    parts: Mapping[str, str]

    @property
    def digest(self) -> str:
        """Of all parts; folders are named by it."""
        return digest_of(json.dumps(sorted(self.parts.items())))

    def difference(self, now: Mapping[str, str]) -> str | None:
        """Which parts are others now, in words; None if all are the same."""
        names = [name for name in (*self.parts, *now) if self.parts.get(name) != now.get(name)]
        return ", ".join(self._in_words(name, now) for name in dict.fromkeys(names)) or None

    def _in_words(self, name: str, now: Mapping[str, str]) -> str:
        was, is_ = self.parts.get(name, "nothing"), now.get(name, "nothing")
        if _DIGEST.fullmatch(was) or _DIGEST.fullmatch(is_):
            return f"{name} differ"
        return f"{name} {was or 'nothing'}, now {is_ or 'nothing'}"

    def to_data(self) -> dict[str, str]:
        return dict(self.parts)

    @classmethod
    def from_data(cls, data: Any) -> Fingerprint:
        """Raises CacheError for what is no mapping of texts."""
        if not isinstance(data, dict) or not all(type(each) is str for each in (*data.keys(), *data.values())):
            raise CacheError("a fingerprint has parts with a name and a text each")
        return cls(data)
