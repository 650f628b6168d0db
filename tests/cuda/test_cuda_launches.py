"""What reaches the device at a call, by the simulated runtime's trace."""

from pathlib import Path

from process import run_command

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
    calls = _calls(tmp_path, _PROGRAM)
    blocks, one, replay = "cudaLaunchKernel aten::_foreach_copy_", "cudaLaunchKernel aten::copy_", "cudaGraphLaunch"
    assert calls == [[blocks, replay], [blocks, one, replay]] * 2


_FED_BACK = """
import os, torch, airgraph
torch.set_grad_enabled(False)
step = torch.compile(lambda state: state * 0.5 + 1, backend="airgraph", dynamic=False)
state = torch.zeros(4, device="cuda")
for number in range(8):
    if number > 2:
        torch.cuda.synchronize()
        os.write(2, b"BEGIN\\n")
    state = step(state)
    os.write(2, b"END\\n")
assert state.tolist() == [2 - 0.5 ** 7] * 4
"""


def test_a_state_that_is_fed_back_costs_one_copy_and_one_replay(tmp_path: Path) -> None:
    """No memory, and no copy out of the pool beside the one into the input's buffer."""
    assert _calls(tmp_path, _FED_BACK) == [["cudaMemcpyAsync", "cudaGraphLaunch"]] * 5


def _calls(tmp_path: Path, program: str) -> list[list[str]]:
    script = tmp_path / "program.py"
    script.write_text(program)
    done = run_command(str(script), device="cuda", SIMCUDA_TRACE="stderr")
    assert done.returncode == 0, done.stderr
    return [
        [line.split("] ")[1].split(",")[0].split(" 0x")[0] for line in part.partition("END\n")[0].splitlines()]
        for part in done.stderr.split("BEGIN\n")[1:]
    ]
