"""What holds for the operators of a block: `stream`."""

from airgraph.program.stream_marks import stream

__all__ = ["stream"]
