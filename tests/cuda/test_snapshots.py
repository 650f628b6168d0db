"""Asking what a pool holds takes no reference from the numbers that everybody uses."""

import sys

import torch

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
