"""A capture by hand while it is under way: the modes that bring every call of the thread to a recorder."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from airgraph.errors import CaptureError, UnsupportedGraph
from airgraph.program import source_lines
from airgraph.program.stream_marks import is_mark, is_record, is_token, is_wait, is_wait_for_tensors
from airgraph.runtime.cpu import captures
from airgraph.runtime.cpu.capture_streams import CaptureStreams
from airgraph.runtime.cpu.recorder import Recorder
from airgraph.runtime.cpu.streams import current_place, current_stream
from airgraph.runtime.cpu.value_reads import read_of
from airgraph.runtime.engine.loading import engine
from airgraph.torch_internals.dispatcher import has_kernel_for
from airgraph.torch_internals.modes import TorchDispatchMode

__all__ = ["READ_NATIVELY", "Session"]

# What the engine says when memory is asked for that is not there yet, see `unallocated` in csrc/internals/tensors.cpp.
READ_NATIVELY = "a tensor of a graph that is being captured is read"


class Session:
    """A capture under way: the modes that bring every call to the recorder."""

    def __init__(self, capture_error_mode: str) -> None:
        self.capture_error_mode = capture_error_mode
        self.thread = threading.get_ident()
        self.stream = current_stream()
        self.default_dtype = torch.get_default_dtype()
        self.recorder = Recorder(keep_external=True)
        self.streams = CaptureStreams(self.recorder.order, self.stream)
        self.invalid: str | None = None
        self._modes = (_RefuseReads(self), _RecordCalls(self))
        self._before = engine().ThreadState()
        self._left = False

    def invalidate(self, why: str) -> None:
        self.invalid = self.invalid or why

    def mark(self, func: Any, args: Any) -> torch.Tensor | None:
        """An event of a tag, a token, a wait for one of both or for tensors, or memory that a stream of a tag uses."""
        if is_record(func):
            self.streams.record_tag(args[0], current_place())
        elif is_wait(func):
            self.streams.wait_tag(args[0], current_place(), source_lines.of_caller)
        elif is_token(func):
            return self.streams.token(current_place())
        elif is_wait_for_tensors(func):
            for tensor in args[0]:
                self.streams.wait_for(tensor, self.recorder.calls_writing(tensor), current_place())
        else:
            self.recorder.keep_to_the_end(args[0])
        return None

    def enter(self) -> None:
        # Casts of weights that a call outside has made are not part of the graph, nor those of the graph of others.
        torch.clear_autocast_cache()
        for mode in self._modes:
            mode.__enter__()
        captures.begin(self)

    def leave(self) -> None:
        if self._left:
            return
        self._left = True
        captures.end(self)
        torch.clear_autocast_cache()
        for mode in reversed(self._modes):
            mode.__exit__(None, None, None)

    def break_off(self, raised: BaseException | None) -> None:
        """Leave after an exception, which may have fallen anywhere: the thread's state is as it was before.

        raised: where it is at hand; where frames that it keeps hold guards of torch, those frames are cleared.
        """
        self._left = True
        captures.end(self)
        torch.clear_autocast_cache()
        self._before.restore(raised)

    def refuse(self, rule: str) -> CaptureError:
        self.invalidate(rule)
        return CaptureError(f"{rule}. Move it out of the capture.")


class _RecordCalls(TorchDispatchMode):
    # Else torch refuses them, in words of its own.
    supports_higher_order_operators = True

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):
            raise self._session.refuse(f"{func} at {source_lines.of_caller()}: higher-order operators are not captured")
        if is_mark(func):
            return self._session.mark(func, args)
        if has_kernel_for(func.name(), "CompositeImplicitAutograd"):
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        try:
            self._session.streams.enter_current(current_place(), source_lines.of_caller)
            return self._session.recorder.record(func, args, kwargs, source_lines.of_caller)
        except CaptureError as error:
            self._session.invalidate(str(error))
            raise
        except UnsupportedGraph as error:
            raise self._session.refuse(f"cannot be captured: {error}") from error


class _RefuseReads(TorchFunctionMode):
    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        read = read_of(func, args, kwargs)
        if read is not None:
            where = source_lines.of_caller()
            raise self._session.refuse(
                f"a tensor's value is read during capture, by {read} at {where}: it has none before replay"
            )
        out = kwargs.get("out")
        if not isinstance(out, torch.Tensor):
            return func(*args, **kwargs)
        calls = self._session.recorder.calls_touching(out)
        result = func(*args, **kwargs)
        if out.numel() and self._session.recorder.calls_touching(out) == calls:
            # Under a dispatch mode torch.linalg.matrix_rank computes a new tensor and leaves `out=` as it was.
            name = torch.overrides.resolve_name(func)
            raise self._session.refuse(f"{name} at {source_lines.of_caller()}: it does not write its out= in a capture")
        return result
