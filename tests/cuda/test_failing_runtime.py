"""What else happens beside a capture or makes it fail on CUDA; tests/conformance has what other devices share."""

import gc
import threading
from pathlib import Path

import pytest
import torch
from process import run_command
from reports import counters
from torch import Tensor

simcuda = pytest.importorskip("simcuda")
pytestmark = pytest.mark.filterwarnings("ignore:airgraph")


def _program(x: Tensor) -> Tensor:
    return (x * 2).relu() + x


@torch.no_grad()
def test_pinned_memory_is_routed_to_no_pool_after_a_begin_that_failed() -> None:
    """torch routes it to the pool of a capture as it does the device's."""
    call = torch.compile(_program, backend="airgraph", dynamic=False)
    with simcuda.fail_once("cudaStreamBeginCapture"):
        call(torch.ones(4, device="cuda"))
    pinned = torch.arange(5.0).pin_memory()
    moved = pinned.to("cuda", non_blocking=True)
    for rows in (4, 5, 6):
        x = torch.arange(float(rows), device="cuda")
        torch.testing.assert_close(call(x), _program(x))
    del x
    assert torch.equal(moved.cpu(), torch.arange(5.0)) and torch.equal(pinned, torch.arange(5.0))
    # The shape whose capture failed runs eagerly from then on.
    assert counters()["captures"] == 2 and counters()["eager_calls"] == 2


_ALMOST_FULL = """
import torch, airgraph
torch.set_grad_enabled(False)
mib = 1 << 20
torch.cuda.set_per_process_memory_fraction(256 * mib / torch.cuda.mem_get_info()[1])
# 180 of the 256 MiB, in blocks that are too small for what the graph needs.
cached = [torch.empty(12 * mib, dtype=torch.uint8, device="cuda") for _ in range(15)]
del cached
x = torch.ones(30 * mib // 4, device="cuda")
call = torch.compile(lambda x: (x * 2).sum(), backend="airgraph", dynamic=False)
for _ in range(2):
    assert call(x).item() == 2 * x.numel()
print({name: count for name, count in airgraph.explain().to_dict()["counters"].items() if count})
"""


def test_what_the_allocator_caches_is_given_up_for_a_capture(tmp_path: Path) -> None:
    """Blocks that nobody uses cannot be released while a capture is under way: a program that fits is captured."""
    script = tmp_path / "program.py"
    script.write_text(_ALMOST_FULL)
    done = run_command(str(script), device="cuda")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith("{'captures': 1, 'replays': 2}\n"), done.stdout


@torch.no_grad()
def test_other_threads_may_allocate_while_a_graph_is_captured() -> None:
    stop = threading.Event()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            number = 0
            while not stop.is_set():
                torch.ones((number % 7 + 1) << 20, device="cuda")
                torch.cuda.empty_cache()
                number += 1
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        call = torch.compile(_program, backend="airgraph", dynamic=False)
        for rows in range(2, 8):
            x = torch.ones(rows, device="cuda")
            torch.testing.assert_close(call(x), _program(x))
    finally:
        stop.set()
        thread.join()
    assert not errors and counters()["captures"] == 6 and counters()["eager_calls"] == 0
    gc.collect()
