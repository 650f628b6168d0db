"""Whether what was traced then is what would be traced now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airgraph.cache.checking.module_sources import what_changed
from airgraph.cache.format.manifest import Manifest
from airgraph.cache.store.fingerprint import versions

__all__ = ["why_stale"]


def why_stale(
    manifest: Manifest, fingerprint: str | None = None, namespace: Mapping[str, Any] | None = None
) -> str | None:
    """Which version or which traced source file has changed since, in words, or None. fingerprint: the one of now.
    namespace: the globals of the cached function, if it is at hand.
    """
    if fingerprint not in (None, manifest.fingerprint):
        return f"made under the fingerprint {manifest.fingerprint}, here it is {fingerprint}"
    now = versions()
    for name, version in manifest.versions.items():
        if now.get(name, version) != version:
            return f"made by {name} {version}, here is {now[name]}"
    if namespace is not None and (reason := manifest.process.why_never()) is not None:
        return reason
    changed = what_changed(manifest.sources, namespace)
    return None if changed is None else f"{changed} has changed"
