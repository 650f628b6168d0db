"""Whether what was traced then is what would be traced now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airgraph.cache.checking.module_sources import what_changed
from airgraph.cache.format.fingerprint import Fingerprint
from airgraph.cache.format.manifest import Manifest
from airgraph.cache.store.fingerprint import versions

__all__ = ["why_stale"]


def why_stale(
    manifest: Manifest, fingerprint: Fingerprint | None = None, namespace: Mapping[str, Any] | None = None
) -> str | None:
    """Which part of the fingerprint or which traced source file has changed since, in words, or None.

    fingerprint: the one of now; without it versions are compared. namespace: the globals of the cached function, if it
    is at hand.
    """
    made = manifest.fingerprint.parts
    # What is not loaded here, as torch_npu, may be the same.
    now = {**made, **versions()} if fingerprint is None else fingerprint.parts
    difference = manifest.fingerprint.difference(now)
    if difference is not None:
        return f"made under {difference}"
    if namespace is not None and (reason := manifest.process.why_never()) is not None:
        return reason
    changed = what_changed(manifest.sources, namespace)
    return None if changed is None else f"{changed} has changed"
