"""JSON text that a folder's key has signed in its first line: damaged files and those of others are known as such."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from airgraph.errors import CacheError

__all__ = ["FORMAT", "check_head", "is_of_other_format", "signed_data", "signed_text"]

FORMAT = 10
_MAGIC = "airgraph cache"


def signed_text(data: Mapping[str, Any], key: bytes = b"") -> str:
    """The same data gives the same text."""
    body = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return f"{_head(body, key)}\n{body}\n"


def signed_data(text: str, key: bytes = b"") -> Mapping[str, Any]:
    """What a text says, as JSON has it. Raises CacheError for one that is not whole, or not signed with this key."""
    check_head(text)
    head, _, body = text.partition("\n")
    if not body.endswith("\n") or not hmac.compare_digest(_encoded(head), _encoded(_head(body[:-1], key))):
        raise CacheError("the checksum is wrong: the file is damaged or was changed, or comes from another folder")
    try:
        data = json.loads(body, parse_constant=_refuse, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise CacheError(f"not a cache file: {error}") from error
    if not isinstance(data, dict):
        raise CacheError(f"not a cache file: it holds a {type(data).__name__}")
    return data


def check_head(text: str) -> None:
    """Raises CacheError for what cannot be a cache file of this format, whoever signed it."""
    head = text.partition("\n")[0]
    words = head.split(" ")
    if words[:2] != _MAGIC.split() or len(words) != 5:
        raise CacheError(f"not a cache file: it begins with {head[:40]!r}")
    if words[2] != str(FORMAT):
        raise CacheError(f"format {words[2]}, expected {FORMAT}: another version of airgraph wrote it")


def is_of_other_format(text: str) -> bool:
    """Whether a cache file is of another version of the format, whatever else it holds."""
    words = text.partition("\n")[0].split(" ")
    return words[:2] == _MAGIC.split() and len(words) == 5 and words[2] != str(FORMAT)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON's")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _head(body: str, key: bytes) -> str:
    return f"{_MAGIC} {FORMAT} hmac-sha256 {hmac.new(key, _encoded(body), hashlib.sha256).hexdigest()}"


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
