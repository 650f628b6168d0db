"""The C functions of the simulated CUDA runtime by themselves: what a capture allows, what a graph holds.

A call answers with the name of its error.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_ulonglong, c_void_p
from typing import Any

import pytest
import torch

OK = "cudaSuccess"
UNSUPPORTED = "cudaErrorStreamCaptureUnsupported"
GLOBAL, THREAD_LOCAL, RELAXED = range(3)
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3
EXTERNAL = 1
DISABLE_TIMING = 2
HostFunction = ctypes.CFUNCTYPE(None, c_void_p)


class Runtime:
    """libcudart's functions without the prefix "cuda"; arguments are handles (c_void_p), numbers and references."""

    def __init__(self) -> None:
        torch.cuda.init()
        self._library = ctypes.CDLL("libcudart.so.13")
        self._library.cudaGetErrorName.restype = c_char_p
        # A function that is a node of a graph is called as long as the graph is.
        self._functions: list[Any] = []

    def __getattr__(self, name: str) -> Callable[..., str]:
        function = getattr(self._library, f"cuda{name}")

        def call(*arguments: Any) -> str:
            return str(self._library.cudaGetErrorName(function(*arguments)).decode())

        return call

    def stream(self) -> c_void_p:
        made = c_void_p()
        assert self.StreamCreateWithFlags(byref(made), c_uint(1)) == OK
        return made

    def event(self, flags: int = DISABLE_TIMING) -> c_void_p:
        made = c_void_p()
        assert self.EventCreateWithFlags(byref(made), c_uint(flags)) == OK
        return made

    def memory(self, nbytes: int) -> c_void_p:
        made = c_void_p()
        assert self.Malloc(byref(made), c_size_t(nbytes)) == OK
        return made

    def run(self, stream: c_void_p, does: Callable[[], object]) -> str:
        """Queue a function on a stream, where it runs as a kernel does: later, and once for each launch of a graph."""
        function = HostFunction(lambda _: does() and None)
        self._functions.append(function)
        return self.LaunchHostFunc(stream, function, None)

    def begin(self, stream: c_void_p, mode: int = GLOBAL) -> str:
        return self.StreamBeginCapture(stream, c_int(mode))

    def end(self, stream: c_void_p) -> tuple[str, c_void_p]:
        graph = c_void_p()
        return self.StreamEndCapture(stream, byref(graph)), graph

    def instantiated(self, graph: c_void_p) -> c_void_p:
        made = c_void_p()
        assert self.GraphInstantiateWithFlags(byref(made), graph, c_ulonglong(0)) == OK
        return made

    def status(self, stream: c_void_p) -> int:
        found = c_int(-1)
        assert self.StreamIsCapturing(stream, byref(found)) == OK
        return found.value

    def join(self, stream: c_void_p, earlier: c_void_p) -> str:
        """The stream waits for what is queued on another."""
        event = self.event()
        done = self.EventRecord(event, earlier)
        return done if done != OK else self.StreamWaitEvent(stream, event, c_uint(0))


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    made = Runtime()
    made.GetLastError()
    yield made
    made.DeviceSynchronize()
    made.SetDevice(c_int(0))
    made.GetLastError()


def assert_usable(runtime: Runtime, stream: c_void_p) -> None:
    """A stream runs work, and is captured into a graph that runs."""
    ran: list[int] = []
    assert runtime.status(stream) == 0
    assert runtime.run(stream, lambda: ran.append(1)) == OK
    assert runtime.StreamSynchronize(stream) == OK
    assert runtime.begin(stream) == OK
    assert runtime.run(stream, lambda: ran.append(2)) == OK
    ended, graph = runtime.end(stream)
    assert ended == OK
    executable = runtime.instantiated(graph)
    assert ran == [1]
    assert runtime.GraphLaunch(executable, stream) == OK
    assert runtime.StreamSynchronize(stream) == OK
    assert ran == [1, 2]


def elsewhere(does: Callable[[], str]) -> str:
    """What a call answers in another thread."""
    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(does()))
    thread.start()
    thread.join()
    return answers[0]


def asked(runtime: Runtime, call: str, stream: c_void_p) -> str:
    made = c_void_p()
    calls: dict[str, Callable[[], str]] = {
        "Malloc": lambda: runtime.Malloc(byref(made), c_size_t(64)),
        "DeviceSynchronize": runtime.DeviceSynchronize,
        "StreamSynchronize": lambda: runtime.StreamSynchronize(stream),
        "StreamQuery": lambda: runtime.StreamQuery(stream),
        "StreamDestroy": lambda: runtime.StreamDestroy(stream),
        "StreamBeginCapture": lambda: runtime.begin(stream),
    }
    return calls[call]()


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
@pytest.mark.parametrize("of_the_capturing_thread", [True, False])
def test_the_mode_says_which_threads_may_allocate(runtime: Runtime, mode: int, of_the_capturing_thread: bool) -> None:
    stream = runtime.stream()
    assert runtime.begin(stream, mode) == OK
    allocates = lambda: asked(runtime, "Malloc", stream)
    answer = allocates() if of_the_capturing_thread else elsewhere(allocates)
    is_refused = mode == GLOBAL or (mode == THREAD_LOCAL and of_the_capturing_thread)
    assert answer == (UNSUPPORTED if is_refused else OK)
    assert runtime.status(stream) == (2 if is_refused else 1)
    ended, graph = runtime.end(stream)
    assert ended == ("cudaErrorStreamCaptureInvalidated" if is_refused else OK)
    assert bool(graph.value) is not is_refused
    assert_usable(runtime, stream)


def test_a_thread_may_be_relaxed_for_a_while(runtime: Runtime) -> None:
    stream, mode = runtime.stream(), c_int(RELAXED)
    assert runtime.begin(stream, GLOBAL) == OK
    assert runtime.ThreadExchangeStreamCaptureMode(byref(mode)) == OK
    assert mode.value == GLOBAL
    assert asked(runtime, "Malloc", stream) == OK
    assert runtime.ThreadExchangeStreamCaptureMode(byref(mode)) == OK
    assert mode.value == RELAXED
    assert asked(runtime, "Malloc", stream) == UNSUPPORTED
    runtime.end(stream)
    assert_usable(runtime, stream)


@pytest.mark.parametrize("call", ["StreamSynchronize", "StreamQuery", "DeviceSynchronize"])
def test_a_wait_for_a_capture_spoils_it(runtime: Runtime, call: str) -> None:
    stream = runtime.stream()
    assert runtime.begin(stream, RELAXED) == OK
    assert asked(runtime, call, stream) == UNSUPPORTED
    assert runtime.status(stream) == 2
    assert runtime.run(stream, lambda: None) == "cudaErrorStreamCaptureInvalidated"
    ended, graph = runtime.end(stream)
    assert (ended, graph.value) == ("cudaErrorStreamCaptureInvalidated", None)
    assert_usable(runtime, stream)


def test_the_default_stream_is_not_captured(runtime: Runtime) -> None:
    for name in (None, 1):
        assert runtime.begin(c_void_p(name)) == UNSUPPORTED


def test_begin_and_end_come_in_pairs(runtime: Runtime) -> None:
    stream = runtime.stream()
    assert runtime.end(stream)[0] == "cudaErrorIllegalState"
    assert runtime.begin(stream, 7) == "cudaErrorInvalidValue"
    assert runtime.begin(stream) == OK
    assert runtime.begin(stream) == UNSUPPORTED
    runtime.end(stream)
    assert_usable(runtime, stream)


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
def test_only_a_relaxed_capture_ends_in_another_thread(runtime: Runtime, mode: int) -> None:
    stream = runtime.stream()
    assert runtime.begin(stream, mode) == OK
    answer = elsewhere(lambda: runtime.end(stream)[0])
    assert answer == (OK if mode == RELAXED else "cudaErrorStreamCaptureWrongThread")
    runtime.end(stream)
    assert_usable(runtime, stream)


def test_a_stream_that_was_not_joined(runtime: Runtime) -> None:
    stream, side = runtime.stream(), runtime.stream()
    assert runtime.begin(stream) == OK
    assert runtime.join(side, stream) == OK
    assert runtime.status(side) == 1
    assert runtime.run(side, lambda: None) == OK
    assert runtime.end(side)[0] == "cudaErrorStreamCaptureUnmatched"
    assert runtime.end(stream)[0] in ("cudaErrorStreamCaptureUnjoined", "cudaErrorStreamCaptureInvalidated")
    assert_usable(runtime, stream)
    assert_usable(runtime, side)
    assert runtime.begin(stream) == OK
    assert runtime.join(side, stream) == OK
    assert runtime.run(side, lambda: None) == OK
    assert runtime.end(stream)[0] == "cudaErrorStreamCaptureUnjoined"
    assert_usable(runtime, side)


def test_captures_are_not_merged_and_wait_for_nothing_outside(runtime: Runtime) -> None:
    first, second, other = runtime.stream(), runtime.stream(), runtime.stream()
    assert runtime.begin(first) == OK
    assert runtime.begin(second) == OK
    assert runtime.join(second, first) == "cudaErrorStreamCaptureMerge"
    runtime.end(first), runtime.end(second)
    assert runtime.begin(first) == OK
    assert runtime.join(first, other) == "cudaErrorStreamCaptureIsolation"
    runtime.end(first)
    for stream in (first, second, other):
        assert_usable(runtime, stream)


def test_an_event_of_a_capture_cannot_be_asked(runtime: Runtime) -> None:
    for ask in ("EventQuery", "EventSynchronize"):
        stream, event = runtime.stream(), runtime.event()
        assert runtime.begin(stream, RELAXED) == OK
        assert runtime.EventRecord(event, stream) == OK
        assert getattr(runtime, ask)(event) == "cudaErrorCapturedEvent"
        runtime.end(stream)
        assert runtime.EventRecord(event, stream) == OK
        assert runtime.EventSynchronize(event) == OK
        assert_usable(runtime, stream)


def test_nodes_run_at_each_launch_in_the_order_of_their_dependencies(runtime: Runtime) -> None:
    ran: list[str] = []
    stream, side = runtime.stream(), runtime.stream()
    assert runtime.begin(stream) == OK
    runtime.run(stream, lambda: ran.append("first"))
    runtime.join(side, stream)
    runtime.run(side, lambda: ran.append("beside"))
    runtime.run(stream, lambda: ran.append("second"))
    runtime.join(stream, side)
    runtime.run(stream, lambda: ran.append("last"))
    ended, graph = runtime.end(stream)
    assert ended == OK
    count = c_size_t()
    assert runtime.GraphGetNodes(graph, None, byref(count)) == OK
    # Events within a capture are dependencies, not nodes.
    assert count.value == 4
    executable = runtime.instantiated(graph)
    # What was made of a graph holds on to it.
    assert runtime.GraphDestroy(graph) == OK
    assert runtime.GraphDestroy(graph) == "cudaErrorInvalidValue"
    assert ran == []
    for _ in range(20):
        assert runtime.GraphLaunch(executable, stream) == OK
    assert runtime.StreamSynchronize(stream) == OK
    for begin in range(0, 80, 4):
        once = ran[begin : begin + 4]
        assert (once[0], once[3], sorted(once[1:3])) == ("first", "last", ["beside", "second"])
    assert runtime.GraphExecDestroy(executable) == OK
    assert runtime.GraphExecDestroy(executable) == "cudaErrorInvalidValue"
    assert runtime.GraphLaunch(executable, stream) == "cudaErrorInvalidValue"


def test_an_external_event_is_recorded_by_each_launch(runtime: Runtime) -> None:
    ran: list[str] = []
    stream, other, event = runtime.stream(), runtime.stream(), runtime.event()
    assert runtime.begin(stream) == OK
    runtime.run(stream, lambda: ran.append("in the graph"))
    assert runtime.EventRecordWithFlags(event, stream, c_uint(EXTERNAL)) == OK
    executable = runtime.instantiated(runtime.end(stream)[1])
    assert runtime.GraphLaunch(executable, stream) == OK
    assert runtime.StreamWaitEvent(other, event, c_uint(0)) == OK
    runtime.run(other, lambda: ran.append("after it"))
    assert runtime.StreamSynchronize(other) == OK
    assert ran == ["in the graph", "after it"]


def test_pageable_memory_cannot_be_copied_in_a_capture(runtime: Runtime) -> None:
    stream, target, host = runtime.stream(), runtime.memory(64), (c_ubyte * 64)(*range(64))
    assert runtime.begin(stream) == OK
    assert runtime.MemcpyAsync(target, host, c_size_t(64), c_int(HOST_TO_DEVICE), stream) == UNSUPPORTED
    runtime.end(stream)
    assert_usable(runtime, stream)
    assert runtime.MemcpyAsync(target, host, c_size_t(64), c_int(HOST_TO_DEVICE), stream) == OK
    # What the call was given has been read.
    ctypes.memset(host, 0, 64)
    back = (c_ubyte * 64)()
    assert runtime.MemcpyAsync(back, target, c_size_t(64), c_int(DEVICE_TO_HOST), stream) == OK
    assert runtime.StreamSynchronize(stream) == OK
    assert list(back) == list(range(64))


def test_a_copy_says_which_way_it_goes(runtime: Runtime) -> None:
    stream, device, host = runtime.stream(), runtime.memory(64), (c_ubyte * 64)()
    for target, source, kind in ((host, device, HOST_TO_DEVICE), (device, host, DEVICE_TO_DEVICE)):
        answer = runtime.MemcpyAsync(target, source, c_size_t(64), c_int(kind), stream)
        assert answer == "cudaErrorInvalidMemcpyDirection"


def test_memory_is_freed_once_and_ends_where_it_ends(runtime: Runtime) -> None:
    stream, memory = runtime.stream(), runtime.memory(64)
    assert runtime.Free(c_void_p(memory.value + 8)) == "cudaErrorInvalidValue"
    assert runtime.Free(memory) == OK
    assert runtime.Free(memory) == "cudaErrorInvalidValue"
    assert runtime.Free(None) == OK
    # More than is left of the whole is out of memory, and leaves everything as it was.
    free, total = c_size_t(), c_size_t()
    assert runtime.MemGetInfo(byref(free), byref(total)) == OK
    assert runtime.Malloc(byref(memory), c_size_t(total.value + 1)) == "cudaErrorMemoryAllocation"
    after = c_size_t()
    assert runtime.MemGetInfo(byref(after), byref(total)) == OK
    assert after.value == free.value
    assert_usable(runtime, stream)


def test_a_write_past_the_end_of_memory_fails_its_stream(runtime: Runtime) -> None:
    memory, neighbour = runtime.memory(64), runtime.memory(64)
    for nbytes in (1 << 20, 64):
        stream = runtime.stream()
        # The second time there is nothing any more.
        assert runtime.MemsetAsync(memory, c_int(1), c_size_t(nbytes), stream) == OK
        assert runtime.StreamSynchronize(stream) == "cudaErrorIllegalAddress"
        assert runtime.StreamDestroy(stream) == OK
        if nbytes > 64:
            assert runtime.Free(memory) == OK
    assert runtime.Free(neighbour) == OK


def test_a_device_has_streams_and_memory_of_its_own(runtime: Runtime) -> None:
    number, there = c_int(), c_void_p()
    assert runtime.SetDevice(c_int(99)) == "cudaErrorInvalidDevice"
    assert runtime.SetDevice(c_int(1)) == OK
    assert runtime.GetDevice(byref(number)) == OK
    assert number.value == 1
    # A thread chooses for itself.
    assert elsewhere(lambda: f"{runtime.GetDevice(byref(number))} {number.value}") == f"{OK} 0"
    there, stream = runtime.memory(64), runtime.stream()
    assert runtime.SetDevice(c_int(0)) == OK
    here = runtime.memory(64)
    attributes = (c_int * 64)()
    for memory, device in ((here, 0), (there, 1)):
        assert runtime.PointerGetAttributes(byref(attributes), memory) == OK
        assert attributes[1] == device
    # A stream is its device's, whichever is the current one, and peers' memory is copied.
    filled, back = (c_ubyte * 64)(*range(64)), (c_ubyte * 64)()
    assert runtime.MemcpyAsync(here, filled, c_size_t(64), c_int(HOST_TO_DEVICE), stream) == OK
    assert runtime.MemcpyPeerAsync(there, c_int(1), here, c_int(0), c_size_t(64), stream) == OK
    assert runtime.MemcpyAsync(back, there, c_size_t(64), c_int(DEVICE_TO_HOST), stream) == OK
    assert runtime.StreamSynchronize(stream) == OK
    assert list(back) == list(range(64))
    assert_usable(runtime, stream)


def test_a_capture_on_one_device_leaves_the_other_alone(runtime: Runtime) -> None:
    stream = runtime.stream()
    assert runtime.SetDevice(c_int(1)) == OK
    other = runtime.stream()
    assert runtime.SetDevice(c_int(0)) == OK
    assert runtime.begin(stream, THREAD_LOCAL) == OK
    assert_usable(runtime, other)
    assert runtime.status(stream) == 1
    assert runtime.end(stream)[0] == OK


def test_times_are_those_of_events_that_have_them(runtime: Runtime) -> None:
    stream, elapsed = runtime.stream(), c_float(-1)
    first, second, without = runtime.event(0), runtime.event(0), runtime.event()
    assert runtime.EventElapsedTime(byref(elapsed), first, second) == "cudaErrorInvalidResourceHandle"
    for event in (first, without, second):
        assert runtime.EventRecord(event, stream) == OK
    assert runtime.EventSynchronize(second) == OK
    assert runtime.EventElapsedTime(byref(elapsed), first, second) == OK
    assert elapsed.value >= 0
    assert runtime.EventElapsedTime(byref(elapsed), first, without) == "cudaErrorInvalidResourceHandle"
    assert runtime.EventDestroy(first) == OK
    assert runtime.EventDestroy(first) == "cudaErrorInvalidResourceHandle"
    assert runtime.EventRecord(first, stream) == "cudaErrorInvalidResourceHandle"


def test_the_last_error_is_kept_until_it_is_asked_for(runtime: Runtime) -> None:
    assert runtime.SetDevice(c_int(99)) == "cudaErrorInvalidDevice"
    assert runtime.PeekAtLastError() == "cudaErrorInvalidDevice"
    assert elsewhere(runtime.GetLastError) == OK
    assert runtime.GetLastError() == "cudaErrorInvalidDevice"
    assert runtime.GetLastError() == OK


def test_handles_of_nothing_are_named(runtime: Runtime) -> None:
    stream = runtime.stream()
    assert runtime.StreamDestroy(stream) == OK
    for call in ("StreamSynchronize", "StreamQuery", "StreamDestroy", "StreamBeginCapture"):
        assert asked(runtime, call, stream) == "cudaErrorInvalidResourceHandle"
    assert runtime.GraphDestroy(stream) == "cudaErrorInvalidValue"
