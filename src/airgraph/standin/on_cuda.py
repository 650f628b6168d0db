"""What `torch.npu` has where npu stands for a CUDA device: torch.cuda's own, which are told of npu as that device."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

__all__ = ["Names"]

# By the same name but for these.
_OTHER_NAMES = {"NPUGraph": "CUDAGraph"}


class Names:
    """at: a device as a program has it, as torch.cuda knows it; other values are handed on."""

    def __init__(self, at: Callable[[Any], Any]) -> None:
        self._at = at
        self._own = {"Stream": _stream_class(at), "graph": _graph}

    def get(self, name: str) -> Any:
        """What torch.npu has by this name. Raises AttributeError."""
        if name in self._own:
            return self._own[name]
        found = getattr(torch.cuda, _OTHER_NAMES.get(name, name))
        return self._told(found) if inspect.isfunction(found) else found

    def _told(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*map(self._at, args), **{name: self._at(value) for name, value in kwargs.items()})

        return call


def _stream_class(at: Callable[[Any], Any]) -> type:
    any_stream: Any = torch.cuda.Stream
    kind: Any = type(any_stream)

    class IsAnyStream(kind):
        def __instancecheck__(self, other: object) -> bool:
            return isinstance(other, any_stream)

    class Stream(any_stream, metaclass=IsAnyStream):
        def __new__(cls, device: Any = None, priority: int = 0, **others: Any) -> Any:
            return super().__new__(cls, at(device), priority, **others)

    return Stream


def _graph(
    npu_graph: Any,
    pool: Any = None,
    stream: Any = None,
    auto_dispatch_capture: bool = False,
    capture_error_mode: str = "global",
) -> AbstractContextManager[None]:
    """`torch.cuda.graph`, with torch_npu's arguments.

    auto_dispatch_capture: notes operators whose numbers `NPUGraph.update` is to change, which a CUDA graph does not
    have, so that there is nothing to note.
    """
    return torch.cuda.graph(npu_graph, pool=pool, stream=stream, capture_error_mode=capture_error_mode)
