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
    """The file's content: origin, versions, guards, and the graph as Python. Raises CacheError."""
    manifest = read_manifest(path)
    made_by = ("airgraph", "torch", "torch_npu", "python")
    parts = manifest.fingerprint.parts
    versions = ", ".join(f"{name} {parts[name]}" for name in made_by if name in parts)
    lines = [
        f"# {path}",
        f"# {manifest.function} on {manifest.device}, made by {versions}",
        f"# fingerprint {manifest.fingerprint.digest}, {manifest.state}",
        *(f"# {name} {text}" for name, text in parts.items() if name not in made_by and text),
        *(f"# used {each.name} ({each.digest[:12]})" for each in manifest.sources),
        *(f"# needs the environment variable {key} = {value!r}" for key, value in manifest.process.environment.items()),
        "#",
        *(f"# needs {each.kind} of {each.path.text}: {each.expected!r}" for each in manifest.guards),
        *(f"# needs {text}" for text in manifest.shape_guards),
    ]
    try:
        gm = graph_from(manifest.graph)
        program = dump.readable(gm, [each.plan for each in manifest.inputs])
    except CacheError:
        raise
    except Exception as error:
        # Of PyTorch and FX, for what no file of this machine holds.
        raise CacheError(f"{path}: the graph is malformed: {type(error).__name__}: {error}") from error
    text = "\n".join([*lines, "", program, f"# returns {json.dumps(manifest.structure)}"])
    # What a terminal would take for commands is shown as what it is.
    return "".join(each if each.isprintable() or each == "\n" else repr(each)[1:-1] for each in text)
