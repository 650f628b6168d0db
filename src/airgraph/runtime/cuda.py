"""CUDA graphs, by torch.cuda.CUDAGraph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from airgraph.errors import UnsupportedGraph
from airgraph.runtime.accelerator.runtime import AcceleratorRuntime, Failure
from airgraph.runtime.protocol import Capabilities
from airgraph.torch_internals import allocators

__all__ = ["CudaRuntime"]


class CudaRuntime(AcceleratorRuntime):
    """Raises UnsupportedGraph where there is no CUDA device."""

    device_type = "cuda"
    # cuBLAS makes its workspaces and CUDA loads its kernels at their first use.
    capabilities = Capabilities(rng_in_graphs=True, max_streams=None, runs_to_capture=True)
    # With "global", what another thread allocates would spoil a capture.
    capture_error_mode = "thread_local"
    failures = (
        Failure("out of memory", "the device is out of memory", has_culprit=False),
        Failure(
            "stream ?capture ?unjoined|unjoined work",
            "work forked to another stream does not join the graph's stream again; wait for its event before the end",
        ),
        Failure(
            "not permitted when stream is capturing|stream ?capture ?unsupported|stream ?capture ?implicit",
            "it waits for the device or reads a value on the host, which a capture does not allow",
        ),
        Failure(
            "stream ?capture ?isolation|uncaptured (event|work)",
            "it waits for an event recorded outside the capture; let that stream wait for the graph's first",
        ),
        Failure(
            "stream ?capture ?invalidated|previous error during capture|invalid stream capture status",
            "an operator before it, or another thread, did what a capture does not allow; see capture_error_mode",
            may_pass=True,
        ),
    )

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise UnsupportedGraph("torch finds no CUDA device")
        super().__init__()

    @property
    def module(self) -> Any:
        return torch.cuda

    def new_graph(self) -> Any:
        return torch.cuda.CUDAGraph()

    def new_external_event(self) -> Any:
        return torch.cuda.Event(external=True)

    def forget_workspaces(self, streams: Sequence[Any]) -> None:
        # cuBLAS's, which products that are captured would go on using.
        for stream in streams:
            allocators.cuda_forget_workspaces(stream)

    def refuse_setup(self) -> None:
        backend = torch.cuda.get_allocator_backend()
        if backend != "native":
            raise UnsupportedGraph(f"torch's allocator is {backend!r}, and graphs are captured with 'native' only")

    def pool_segments(self, pool_handle: Any) -> list[dict[str, Any]]:
        return allocators.cuda_pool_segments(pool_handle)

    times_graphs = True

    def new_timing_event(self) -> Any:
        return torch.cuda.Event(enable_timing=True, external=True)

    def start_routing(self, device: torch.device, pool_handle: Any) -> None:
        allocators.cuda_start_routing(device, pool_handle)

    def stop_routing(self, device: torch.device, pool_handle: Any) -> None:
        allocators.cuda_stop_routing(device, pool_handle)

    def release_pool(self, device: torch.device, pool_handle: Any) -> None:
        allocators.cuda_release_pool(device, pool_handle)
