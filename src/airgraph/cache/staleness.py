"""Whether what was traced then is what would be traced now."""

from __future__ import annotations

import hashlib
from pathlib import Path

from airgraph.cache.fingerprint import versions
from airgraph.cache.manifest import Manifest

__all__ = ["checksum_of_file", "why_stale"]


def why_stale(manifest: Manifest) -> str | None:
    """Which version or which traced source file has changed since, in words, or None."""
    now = versions()
    for name, version in manifest.versions.items():
        if now.get(name, version) != version:
            return f"made by {name} {version}, here is {now[name]}"
    for file, checksum in manifest.sources.items():
        if checksum_of_file(file) != checksum:
            return f"{file} has changed"
    return None


def checksum_of_file(file: str) -> str:
    """SHA-256 of a file, "" if it cannot be read."""
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return ""
