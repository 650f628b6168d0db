"""What a module held when it was used for a trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airgraph.errors import CacheError

__all__ = ["Source"]


@dataclass(frozen=True, slots=True)
class Source:
    """What a module held: the SHA-256 of its file; or of one function in it, whose qualified name `function` is, a
    digest of its code; or of one global, `=name`, a digest of its value, empty where there was none of that name. file:
    where it was, for messages, and for a process that does not have the module."""

    module: str
    function: str
    file: str
    digest: str

    @property
    def name(self) -> str:
        return f"{self.module}:{self.function}" if self.function else (self.file or self.module)

    def to_data(self) -> list[str]:
        return [self.module, self.function, self.file, self.digest]

    @classmethod
    def from_data(cls, data: Any) -> Source:
        if not isinstance(data, list) or len(data) != 4 or not all(type(each) is str for each in data):
            raise CacheError(f"a source is four texts, got {data!r}")
        return cls(*data)
