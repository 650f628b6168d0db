"""An input that lies in its buffer already is not copied."""

import subprocess
import sys
import textwrap

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
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_PROGRAM)], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.split("\n")[0] == "not copied", done.stderr
    assert done.returncode < 0 and "\ncopied" not in done.stdout
