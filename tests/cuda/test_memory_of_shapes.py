"""What graphs of one pool reserve for many shapes, by the program of benchmarks/cuda_graphs.py."""

from pathlib import Path

import pytest
from process import run_command

_PROGRAM = """
import gc, sys, torch, airgraph

sys.path.insert(0, sys.argv[1])
import cuda_host_time

torch.set_grad_enabled(False)
for order in ("largest alone", "ascending", "descending", "mixed"):
    print(order, cuda_host_time.reserved_nbytes(cuda_host_time.ORDERS[order]), sep=":")
    # Each from nothing, as in a process of its own, which takes much longer.
    torch._dynamo.reset()
    gc.collect()
    airgraph.reset()
    torch.cuda.empty_cache()
"""


@pytest.mark.sweep  # half a minute of compilation
def test_seven_shapes_of_a_decode_step_reserve_little_more_than_the_largest_in_any_order(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(_PROGRAM)
    done = run_command(str(script), str(Path(__file__).parents[2] / "benchmarks"), device="cuda")
    assert done.returncode == 0, done.stderr[-3000:]
    lines = (line.split(":") for line in done.stdout.splitlines() if ":" in line)
    reserved = {order: int(nbytes) for order, nbytes in lines}
    assert len(reserved) == 4 and max(reserved.values()) <= 1.1 * reserved["largest alone"], reserved
