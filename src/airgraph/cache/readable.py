"""A cached graph as text that a person reads."""

from __future__ import annotations

import json
from pathlib import Path

from airgraph.cache.format.graph import graph_from
from airgraph.cache.store.folder import read_manifest
from airgraph.errors import CacheError
from airgraph.program import dump

__all__ = ["readable"]


def readable(path: Path) -> str:
    """The file's content: origin, versions, conditions, and the graph as Python. Raises CacheError."""
    manifest = read_manifest(path)
    versions = ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
    lines = [
        f"# {path}",
        f"# {manifest.function} on {manifest.device}, made by {versions}",
        f"# fingerprint {manifest.fingerprint}, {manifest.state}",
        *(f"# used {each.name} ({each.digest[:12]})" for each in manifest.sources),
        *(f"# needs the environment variable {key} = {value!r}" for key, value in manifest.process.environment.items()),
        "#",
        *(f"# needs {each.kind} of {each.path.text}: {each.expected!r}" for each in manifest.conditions),
        *(f"# needs {text}" for text in manifest.shape_conditions),
    ]
    try:
        gm = graph_from(manifest.graph)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CacheError(f"{path}: the graph is malformed: {error}") from error
    program = dump.readable(gm, [each.plan for each in manifest.inputs])
    return "\n".join([*lines, "", program, f"# returns {json.dumps(manifest.structure)}"])
