"""An input that lies in its buffer already is not copied; an exception may fall anywhere while buffers change."""

import sys
from functools import partial
from types import FrameType
from typing import Any

import pytest
import torch
from process import run_program

from airgraph.memory import input_buffers
from airgraph.memory.input_buffers import InputBuffers

_PROGRAM = """
import ctypes, mmap, torch, airgraph

pool = airgraph.graph_pool_handle()
compiled = torch.compile(lambda x: x.sum(), backend="airgraph", options={"use_graph_pool": pool})
n = 1 << 22
with torch.no_grad():
    x = torch.ones(n)
    compiled(x)
    buffer = pool.inputs.block(0, x.nbytes)[: x.nbytes].view(torch.float32)
    buffer.fill_(2)
    # A write to any whole page of it now ends the process.
    start = -(-buffer.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    nbytes = (buffer.data_ptr() + buffer.nbytes - start) // mmap.PAGESIZE * mmap.PAGESIZE
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert protect(start, nbytes, mmap.PROT_READ) == 0
    assert compiled(buffer).item() == 2.0 * n
    print("not copied", flush=True)
    compiled(x)
    print("copied", flush=True)
"""


def test_an_input_in_its_buffer_is_not_copied() -> None:
    done = run_program(_PROGRAM)
    assert done.stdout.split("\n")[0] == "not copied", done.stderr
    assert done.returncode < 0 and "\ncopied" not in done.stdout


class _Follower:
    address = 0

    def move_to(self, address: int) -> None:
        self.address = address


class _Interrupted(Exception):
    """What a handler of a signal raises."""


def _interrupted_at(line: int, call: Any) -> bool:
    """Whether `call` came as far as the line event of this number in the module, where an exception is raised."""
    left = line

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename != input_buffers.__file__:
            return None
        if event == "line":
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise _Interrupted
        return trace

    sys.settrace(trace)
    try:
        call()
    except _Interrupted:
        return True
    finally:
        sys.settrace(None)
    return False


@pytest.mark.parametrize("change", ["first", "larger", "clear"])
def test_an_exception_may_fall_anywhere(change: str) -> None:
    line = 0
    while True:
        buffers, first, second = InputBuffers(torch.device("cpu")), _Follower(), _Follower()
        if change == "larger":
            for position in range(3):
                buffers.block(position, 64, first)
        call = buffers.clear if change == "clear" else partial(buffers.block, 2, 128, second)
        if not _interrupted_at(line, call):
            break
        assert len(buffers.nbytes) == len(buffers.block_nbytes)
        again = buffers.block(2, 128, second)
        assert second.address == again.data_ptr()
        assert first.address == (again.data_ptr() if change == "larger" else 0)
        # Of what was replaced nothing is left.
        assert buffers.nbytes == buffers.block_nbytes
        buffers.clear()
        assert buffers.nbytes == ()
        line += 1
    assert line > (0 if change == "clear" else 5)
