"""What reaches the device at a call, by the simulated runtime's trace."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from devices import why_missing

pytestmark = pytest.mark.skipif(
    why_missing("npu") is not None or "simcann" not in sys.modules, reason="needs the simulated Ascend runtime"
)

_PROGRAM = """
import os, torch, torch_npu, airgraph
torch.set_grad_enabled(False)
compiled = torch.compile(lambda a, b, c: (a + b) * c, backend="airgraph")
args = [torch.ones(3, device="npu", dtype=dtype) for dtype in (DTYPES)]
for _ in range(3):
    compiled(*args)
torch.npu.synchronize()
os.write(2, b"BEGIN\\n")
compiled(*args)
os.write(2, b"END\\n")
"""


@pytest.mark.parametrize("dtypes", ["torch.half, torch.half, torch.half", "torch.half, torch.int64, torch.bool"])
def test_a_call_is_one_copy_of_all_inputs_and_one_replay(tmp_path: Path, dtypes: str) -> None:
    script = tmp_path / "program.py"
    script.write_text(_PROGRAM.replace("DTYPES", dtypes))
    done = subprocess.run(
        [sys.executable, "-m", "simcann", str(script)],
        env={**os.environ, "SIMCANN_TRACE": "stderr"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    calls = done.stderr.partition("BEGIN\n")[2].partition("END\n")[0].splitlines()
    assert [line.split("] ")[1].split(",")[0].split(" 0x")[0] for line in calls] == [
        "launch aclnnForeachCopy",
        "aclmdlRIExecuteAsync",
    ]
