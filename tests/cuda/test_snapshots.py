"""Asking what a pool holds is quick, and takes no reference from the numbers that everybody uses."""

import sys
from typing import Any

import pytest
import torch

import airgraph
from airgraph.torch_internals.allocators import cuda_pool_segments


def test_snapshots_of_a_pool_keep_references() -> None:
    graph, x = torch.cuda.CUDAGraph(), torch.ones(4, device="cuda")
    with torch.cuda.graph(graph):
        held = x * 2
    handle = graph.pool()
    cuda_pool_segments(handle)
    before = sys.getrefcount(False)
    for _ in range(1000):
        (segment,) = cuda_pool_segments(handle)
    assert segment["segment_pool_id"] == handle and held.shape == (4,)
    assert abs(sys.getrefcount(False) - before) < 500


@torch.no_grad()
def test_a_capture_asks_for_its_own_pool_without_the_history_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all pools, or with traces, a snapshot takes as long as the process has tensors."""
    cuda_pool_segments((0, 0))  # what is asked once a process
    asked: list[tuple[Any, ...]] = []
    taken = torch.cuda.memory_snapshot

    def snapshot(mempool_id: Any = None, include_traces: bool = True) -> Any:
        asked.append((mempool_id, include_traces))
        return taken(mempool_id, include_traces)

    monkeypatch.setattr(torch.cuda, "memory_snapshot", snapshot)
    pool = airgraph.graph_pool_handle("cuda")
    call = torch.compile(lambda x: (x * 2).relu(), backend="airgraph", options={"use_graph_pool": pool})
    x = torch.arange(4.0, device="cuda")
    assert call(x).tolist() == (x * 2).tolist()
    assert asked and set(asked) == {(pool.handle, False)}
