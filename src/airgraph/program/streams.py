"""Which stream a node of a graph is on."""

from __future__ import annotations

from torch.fx import Node

from airgraph.program.nodes import notes

__all__ = ["stream_of"]


def stream_of(node: Node) -> str | None:
    """The stream a node was put on, as its notes say or torch's annotation; None: the default one."""
    custom = node.meta.get("custom") or {}
    stream = notes(node).get("stream", custom.get("stream"))
    return None if stream is None else str(stream)
