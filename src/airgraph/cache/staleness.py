"""Whether what was traced then is what would be traced now."""

from __future__ import annotations

from airgraph.cache.fingerprint import versions
from airgraph.cache.manifest import Manifest
from airgraph.cache.traced_code import what_changed

__all__ = ["why_stale"]


def why_stale(manifest: Manifest, fingerprint: str | None = None) -> str | None:
    """Which version or which traced source file has changed since, in words, or None. fingerprint: the one of now."""
    if fingerprint not in (None, manifest.fingerprint):
        return f"made under the fingerprint {manifest.fingerprint}, here it is {fingerprint}"
    now = versions()
    for name, version in manifest.versions.items():
        if now.get(name, version) != version:
            return f"made by {name} {version}, here is {now[name]}"
    changed = what_changed(manifest.sources)
    return None if changed is None else f"{changed} has changed"
