"""What reaches the device at a call, by the simulated runtime's trace."""

from pathlib import Path

from process import start_command

_PROGRAM = """
import os, torch, airgraph
torch.set_grad_enabled(False)
compiled = torch.compile(lambda a, b, c, d: (a + b) * c + d, backend="airgraph", dynamic=False)
with_gaps = torch.ones(6, 3, device="cuda")[::2]
for dtypes in ((torch.half, torch.half, torch.half), (torch.half, torch.int64, torch.bool)):
    for last in (with_gaps.clone(), with_gaps):
        args = [*(torch.ones(3, 3, device="cuda", dtype=dtype) for dtype in dtypes), last]
        for _ in range(3):
            compiled(*args)
        torch.cuda.synchronize()
        os.write(2, b"BEGIN\\n")
        compiled(*args)
        os.write(2, b"END\\n")
"""


def test_a_call_is_one_copy_of_all_blocks_one_of_each_other_and_one_replay(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(_PROGRAM)
    done = start_command(str(script), device="cuda", SIMCUDA_TRACE="stderr")
    assert done.returncode == 0, done.stderr
    calls = [
        [line.split("] ")[1].split(",")[0].split(" 0x")[0] for line in part.partition("END\n")[0].splitlines()]
        for part in done.stderr.split("BEGIN\n")[1:]
    ]
    blocks, one, replay = "cudaLaunchKernel aten::_foreach_copy_", "cudaLaunchKernel aten::copy_", "cudaGraphLaunch"
    assert calls == [[blocks, replay], [blocks, one, replay]] * 2
