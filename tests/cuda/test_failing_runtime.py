"""What else happens beside a capture or makes it fail on CUDA; tests/conformance has what other devices share."""

import gc
import threading

import pytest
import torch
from reports import counters
from torch import Tensor

import airgraph
from airgraph.runtime.engine.loading import engine

simcuda = pytest.importorskip("simcuda")
pytestmark = pytest.mark.filterwarnings("ignore:airgraph")


def _program(x: Tensor) -> Tensor:
    return (x * 2).relu() + x


@torch.no_grad()
def test_pinned_memory_is_routed_to_no_pool_after_a_begin_that_failed() -> None:
    """torch routes it to the pool of a capture as it does the device's."""
    pool = airgraph.graph_pool_handle("cuda")
    handle = tuple(pool.handle)
    call = torch.compile(_program, backend="airgraph", dynamic=False, options={"use_graph_pool": pool})
    with simcuda.fail_once("cudaStreamBeginCapture"):
        call(torch.ones(4, device="cuda"))
    # The allocator knows of none that it could end.
    assert not engine().stop_host_routing("cuda:0", handle)
    pinned = torch.arange(5.0).pin_memory()
    moved = pinned.to("cuda", non_blocking=True)
    for rows in (4, 5, 6):
        x = torch.arange(float(rows), device="cuda")
        torch.testing.assert_close(call(x), _program(x))
    del x
    assert torch.equal(moved.cpu(), torch.arange(5.0)) and torch.equal(pinned, torch.arange(5.0))
    # The shape whose capture failed runs eagerly from then on.
    assert counters()["captures"] == 2 and counters()["eager_calls"] == 2


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
