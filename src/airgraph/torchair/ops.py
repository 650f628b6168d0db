"""TorchAir's operators that order streams."""

from __future__ import annotations

import torch

from airgraph.errors import OptionError
from airgraph.program.stream_marks import Event, create_event, record, record_stream, wait
from airgraph.torchair.refused import refused
from airgraph.torchair.scope import npu_wait_tensor

__all__ = [
    "npu_create_tagged_event",
    "npu_record_tagged_stream",
    "npu_tagged_event_record",
    "npu_tagged_event_wait",
    "npu_wait_tensor",
    "record",
    "wait",
]


def npu_create_tagged_event(tag: str) -> Event:
    """An event for `npu_tagged_event_record` and `npu_tagged_event_wait`. Make it once, such as in `__init__`.

    Raises OptionError for the tag of an event that is alive, and StreamError for one that is no text or empty.
    """
    return create_event(tag)


def npu_tagged_event_record(event: Event) -> None:
    """Mark what the current stream has done. Raises OptionError for what `npu_create_tagged_event` did not make."""
    _created(event).record()


def npu_tagged_event_wait(event: Event) -> None:
    """Let the current stream go on after the record of an event. Raises OptionError for what `npu_create_tagged_event`
    did not make; a compiled model that waits for what it never recorded raises StreamError when it is called."""
    _created(event).wait()


def npu_record_tagged_stream(input: torch.Tensor, tagged_stream: str) -> None:
    """Keep the memory of a tensor until the stream of this tag has done what it was given; "default" is the main one.

    Raises StreamError for anything but a tensor, and for a tag that is no text or empty.
    """
    record_stream(input, tagged_stream)


def _created(event: Event) -> Event:
    if not isinstance(event, Event):
        raise OptionError(f"event: expected one of npu_create_tagged_event, got {type(event).__name__}")
    return event


npu_print = refused("ops.npu_print")
npu_fused_infer_attention_score = refused("ops.npu_fused_infer_attention_score")
npu_fused_infer_attention_score_v2 = refused("ops.npu_fused_infer_attention_score_v2")
