"""What orders streams beside events: `record`, `wait` and `record_stream`."""

from airgraph.program.stream_marks import record, record_stream, wait

__all__ = ["record", "record_stream", "wait"]
