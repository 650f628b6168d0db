"""What reaches the device at a call, by the simulated runtime's trace."""

from pathlib import Path

import pytest
from devices import simulator
from process import run_command

pytestmark = pytest.mark.skipif(simulator("npu") is None, reason="needs the simulated Ascend runtime")

_PROGRAM = """
import os, torch, torch_npu, airgraph
torch.set_grad_enabled(False)
compiled = torch.compile(lambda a, b, c: (a + b) * c, backend="airgraph", dynamic=False)
for dtypes in ((torch.half, torch.half, torch.half), (torch.half, torch.int64, torch.bool)):
    args = [torch.ones(3, device="npu", dtype=dtype) for dtype in dtypes]
    for _ in range(3):
        compiled(*args)
    torch.npu.synchronize()
    os.write(2, b"BEGIN\\n")
    compiled(*args)
    os.write(2, b"END\\n")
"""

_FORMATS = """
library = torch.library.Library("npu", "IMPL")
library.impl("get_npu_format", lambda x: 29 if x.data_ptr() == args[0].data_ptr() else 2, "PrivateUse1")
"""


def test_a_call_is_a_plain_copy_of_each_input_and_one_replay(tmp_path: Path) -> None:
    """Nothing passes the queue of torch_npu's other thread."""
    assert _calls(tmp_path, _PROGRAM) == [["aclrtMemcpyAsync"] * 3 + ["aclmdlRIExecuteAsync"]] * 2


def test_an_input_in_an_internal_format_is_copied_by_torch_npu(tmp_path: Path) -> None:
    """Which the simulated runtime has none of: the first argument only says that it has one, at later calls too."""
    program = _PROGRAM.replace("for dtypes", f"args = []\n{_FORMATS}\nfor dtypes")
    calls = _calls(tmp_path, program)
    assert calls == [["aclrtMemcpyAsync", "aclrtMemcpyAsync", "launch aclnnInplaceCopy", "aclmdlRIExecuteAsync"]] * 2


_QUEUED = """
import os, torch, torch_npu, airgraph
torch.set_grad_enabled(False)
call = torch.compile(lambda x: x * 2, backend="airgraph", dynamic=False)
x = torch.ones(4, device="npu")
expected = torch.full((4,), 2.0 * 31)
call(x)
torch.npu.synchronize()
for _ in range(3):
    os.write(2, b"BEGIN\\n")
    y = x
    for _ in range(30):
        y = y + 1
    out = call(y)
    os.write(2, b"END\\n")
    assert torch.equal(out.cpu(), expected), out
    # Else it is moved at the next call.
    del out
"""


def test_a_plain_copy_comes_after_what_the_queue_holds(tmp_path: Path) -> None:
    """It passes by the queue, in which what makes the input may still wait for the other thread."""
    calls = _calls(tmp_path, _QUEUED, SIMCANN_SCHEDULE="adversarial")
    assert calls == [["launch aclnnAdds"] * 30 + ["aclrtMemcpyAsync", "aclmdlRIExecuteAsync"]] * 3


def _calls(tmp_path: Path, program: str, **environment: str) -> list[list[str]]:
    script = tmp_path / "program.py"
    script.write_text(program)
    done = run_command(str(script), device="npu", SIMCANN_TRACE="stderr", **environment)
    assert done.returncode == 0, done.stderr
    return [
        [line.split("] ")[1].split(",")[0].split(" 0x")[0] for line in part.partition("END\n")[0].splitlines()]
        for part in done.stderr.split("BEGIN\n")[1:]
    ]
