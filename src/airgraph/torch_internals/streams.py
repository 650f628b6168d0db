"""How urgent torch's own streams are, which a traced graph knows by numbers."""

from __future__ import annotations

import functools
from typing import Any

import torch

__all__ = ["priority_of_number", "priority_of_stream"]

# Of torch_npu's: each of its pools has so many streams, whose numbers follow one another.
_STREAMS_OF_A_POOL = 32


def priority_of_number(number: object) -> int:
    """Of the stream that Dynamo knows by this number, while its trace is compiled; 0 where none is known."""
    from torch._dynamo.graph_bytecode_inputs import index_to_external_object_weakref

    found = index_to_external_object_weakref.get(number)  # type: ignore[call-overload]
    stream = None if found is None else found()
    return priority_of_stream(stream) if isinstance(stream, torch.Stream) else 0


def priority_of_stream(stream: torch.Stream) -> int:
    """As the device's own class of streams takes it: lower is more urgent.

    torch_npu does not tell it, and has two kinds of streams: -1 stands for all that are urgent.
    """
    module = torch.get_device_module(stream.device)
    if stream.device.type == "npu":
        return -1 if _npu_pool(stream) == _urgent_npu_pool(module) else 0
    if not hasattr(stream, "priority"):
        if not issubclass(module.Stream, torch.Stream):
            # The CPU's.
            return 0
        # A `torch.Stream`, which does not know.
        stream = module.Stream(
            stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
        )
    return int(getattr(stream, "priority", 0))


def _npu_pool(stream: Any) -> int:
    return int(stream.stream_id) // _STREAMS_OF_A_POOL


@functools.cache
def _urgent_npu_pool(module: Any) -> int:
    return _npu_pool(module.Stream(priority=-1))
