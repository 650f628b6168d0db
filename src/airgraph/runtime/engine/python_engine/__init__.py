"""Replays tapes in Python, with the names of the native engine: where there is no compiler."""

from airgraph.memory.replay_lock import ReplayLock
from airgraph.runtime.engine.python_engine.cache import CallReader, Gate, Observer, SetBack, Settled, Watch
from airgraph.runtime.engine.python_engine.replay import (
    Block,
    DeviceLaunch,
    DeviceNeighbours,
    HandGraph,
    Launch,
    LiveOutputs,
    Neighbours,
    RecordedCall,
    ReplayFailure,
    Segment,
    Strides,
    Tape,
    ThreadState,
)
from airgraph.runtime.engine.python_engine.values import (
    allocate,
    bytes_at,
    first_overlap,
    has_kernel,
    is_foreign,
    pointwise_form,
    resize_unallocated,
    serve_private_device,
    settings,
    share_storage,
    unallocated,
    view_at,
    whole,
)

__all__ = [
    "MOVES_MEMORY",
    "Block",
    "CallReader",
    "DeviceLaunch",
    "DeviceNeighbours",
    "Gate",
    "HandGraph",
    "Launch",
    "LiveOutputs",
    "Neighbours",
    "Observer",
    "RecordedCall",
    "ReplayFailure",
    "Segment",
    "SetBack",
    "Settled",
    "Strides",
    "Tape",
    "ThreadState",
    "ReplayLock",
    "Watch",
    "allocate",
    "bytes_at",
    "first_overlap",
    "has_kernel",
    "is_foreign",
    "pointwise_form",
    "resize_unallocated",
    "serve_private_device",
    "settings",
    "share_storage",
    "unallocated",
    "view_at",
    "whole",
]

# Whether tensors that the tape holds can be pointed at other memory: they cannot from Python.
MOVES_MEMORY = False
