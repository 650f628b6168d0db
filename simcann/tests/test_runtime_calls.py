# SPDX-License-Identifier: Apache-2.0
"""The runtime's C functions called directly: what torch_npu never does wrong, and so never shows."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import byref, c_float, c_int, c_size_t, c_uint64, c_void_p

import pytest
import torch

PARAM_INVALID = 107000
INVALID_STREAM = 107003
TIMESTAMP_INVALID = 107006
UNALIGNED = 107008
MEMORY_ALLOCATION = 207001
SYNC_TIMEOUT = 507046

HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, BY_ADDRESS = 1, 2, 3, 4
WAIT_EQUAL = 1


class Runtime:
    """Calls functions of libascendcl by name; a failure raises with its status and message."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libascendcl.so")
        self._library.aclGetRecentErrMsg.restype = ctypes.c_char_p

    def status(self, name: str, *arguments: object) -> int:
        return int(getattr(self._library, name)(*arguments))

    def message(self) -> str:
        text = self._library.aclGetRecentErrMsg()
        return text.decode() if text else ""

    def __call__(self, name: str, *arguments: object) -> None:
        status = self.status(name, *arguments)
        assert status == 0, (status, self.message())


@pytest.fixture(scope="module")
def acl() -> Runtime:
    torch.npu.synchronize()  # initialises the runtime
    return Runtime()


@pytest.fixture
def device(acl: Runtime) -> Iterator[c_void_p]:
    """1000 bytes of device memory."""
    pointer = c_void_p()
    acl("aclrtMalloc", byref(pointer), c_size_t(1000), 0)
    yield pointer
    acl("aclrtFree", pointer)


@pytest.fixture
def stream(acl: Runtime) -> Iterator[c_void_p]:
    pointer = c_void_p()
    acl("aclrtCreateStreamWithConfig", byref(pointer), 0, 0)
    yield pointer
    acl("aclrtDestroyStream", pointer)


def test_copies_carry_bytes(acl: Runtime, device: c_void_p) -> None:
    source, target = ctypes.create_string_buffer(b"hello", 1000), ctypes.create_string_buffer(1000)
    acl("aclrtMemcpy", device, c_size_t(1000), source, c_size_t(1000), HOST_TO_DEVICE)
    acl("aclrtMemcpy", target, c_size_t(1000), device, c_size_t(1000), BY_ADDRESS)
    assert target.value == b"hello"


def test_copies_are_checked(acl: Runtime, device: c_void_p) -> None:
    host = ctypes.create_string_buffer(4000)
    beyond = c_void_p(device.value + 1)
    for arguments, message in [
        ((device, c_size_t(10), host, c_size_t(11), HOST_TO_DEVICE), "writing 11 bytes to a target of 10"),
        ((device, c_size_t(10), host, c_size_t(10), DEVICE_TO_HOST), "the copy kind says host"),
        ((host, c_size_t(10), host, c_size_t(10), DEVICE_TO_DEVICE), "the copy kind says device"),
        ((device, c_size_t(2000), host, c_size_t(2000), HOST_TO_DEVICE), "not all allocated device memory"),
        ((host, c_size_t(1000), beyond, c_size_t(1000), DEVICE_TO_HOST), "not all allocated device memory"),
    ]:
        assert acl.status("aclrtMemcpy", *arguments) == PARAM_INVALID
        assert message in acl.message()


def test_a_message_is_given_once(acl: Runtime) -> None:
    assert acl.status("aclrtFree", c_void_p(64)) == PARAM_INVALID
    assert "0x40" in acl.message()
    assert acl.message() == ""


def test_memory_beyond_the_limit_is_refused(acl: Runtime) -> None:
    pointer = c_void_p()
    assert acl.status("aclrtMalloc", byref(pointer), c_size_t(1 << 45), 0) == MEMORY_ALLOCATION


def test_pointers_know_where_they_are(acl: Runtime, device: c_void_p) -> None:
    class Attributes(ctypes.Structure):
        _fields_ = (("id", ctypes.c_uint32), ("type", c_int), ("page", ctypes.c_uint32), ("rest", ctypes.c_uint32 * 4))

    def place(pointer: object) -> int:
        attributes = Attributes()
        acl("aclrtPointerGetAttributes", pointer, byref(attributes))
        return attributes.type

    pinned = c_void_p()
    acl("aclrtMallocHost", byref(pinned), c_size_t(100))
    assert (place(pinned), place(device), place(ctypes.create_string_buffer(8))) == (0, 1, 2)
    acl("aclrtFreeHost", pinned)


def test_an_unknown_stream_is_refused(acl: Runtime) -> None:
    assert acl.status("aclrtSynchronizeStream", c_void_p(1234)) == INVALID_STREAM
    assert "is not a stream" in acl.message()


def test_a_value_wait_holds_the_stream(acl: Runtime, device: c_void_p, stream: c_void_p) -> None:
    other = c_void_p()
    acl("aclrtCreateStream", byref(other))
    acl("aclrtMemset", device, c_size_t(8), 0, c_size_t(8))
    acl("aclrtValueWait", device, c_uint64(3), WAIT_EQUAL, stream)
    assert acl.status("aclrtSynchronizeStreamWithTimeout", stream, 20) == SYNC_TIMEOUT
    acl("aclrtValueWrite", device, c_uint64(3), 0, other)
    acl("aclrtSynchronizeStreamWithTimeout", stream, 10000)
    acl("aclrtDestroyStream", other)
    assert acl.status("aclrtValueWait", c_void_p(device.value + 4), c_uint64(3), WAIT_EQUAL, stream) == UNALIGNED


def test_a_stream_that_waits_forever_can_be_destroyed_by_force(acl: Runtime, device: c_void_p) -> None:
    stream, graph = c_void_p(), c_void_p()
    acl("aclrtMemset", device, c_size_t(8), 0, c_size_t(8))
    acl("aclrtCreateStream", byref(stream))
    acl("aclmdlRICaptureBegin", stream, 0)
    acl("aclrtValueWait", device, c_uint64(1), WAIT_EQUAL, stream)
    acl("aclmdlRICaptureEnd", stream, byref(graph))
    for _ in range(2):
        acl("aclrtValueWait", device, c_uint64(1), WAIT_EQUAL, stream)
        acl("aclmdlRIExecuteAsync", graph, stream)
        acl("aclrtStreamAbort", stream)
        acl("aclrtSynchronizeStreamWithTimeout", stream, 10000)
    acl("aclmdlRIExecuteAsync", graph, stream)
    acl("aclrtDestroyStreamForce", stream)
    acl("aclmdlRIDestroy", graph)


def test_events_measure_time(acl: Runtime, stream: c_void_p) -> None:
    start, end = c_void_p(), c_void_p()
    milliseconds = c_float()
    for event in (start, end):
        acl("aclrtCreateEventExWithFlag", byref(event), 8)
    assert acl.status("aclrtEventElapsedTime", byref(milliseconds), start, end) == TIMESTAMP_INVALID
    acl("aclrtRecordEvent", start, stream)
    acl("aclrtRecordEvent", end, stream)
    acl("aclrtSynchronizeEvent", end)
    acl("aclrtEventElapsedTime", byref(milliseconds), start, end)
    assert milliseconds.value >= 0
    for event in (start, end):
        acl("aclrtDestroyEvent", event)
    assert acl.status("aclrtRecordEvent", start, stream) == PARAM_INVALID


def test_external_events_stay_outside_of_captures(acl: Runtime, stream: c_void_p) -> None:
    external = 0x20
    event, other, graph = c_void_p(), c_void_p(), c_void_p()
    acl("aclrtCreateEventWithFlag", byref(event), external)
    acl("aclrtCreateStream", byref(other))
    acl("aclmdlRICaptureBegin", stream, 0)
    acl("aclrtStreamWaitEvent", stream, event)
    acl("aclrtResetEvent", event, stream)
    acl("aclmdlRICaptureEnd", stream, byref(graph))
    for _ in range(3):
        acl("aclmdlRIExecuteAsync", graph, stream)
        assert acl.status("aclrtSynchronizeStreamWithTimeout", stream, 20) == SYNC_TIMEOUT
        acl("aclrtRecordEvent", event, other)
        acl("aclrtSynchronizeStreamWithTimeout", stream, 10000)
    acl("aclmdlRIDestroy", graph)
    acl("aclrtDestroyStream", other)
    acl("aclrtDestroyEvent", event)
