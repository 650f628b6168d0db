"""What orders streams beside events: `record_stream`."""

from airgraph.program.stream_marks import record_stream

__all__ = ["record_stream"]
