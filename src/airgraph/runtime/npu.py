"""Ascend graphs, by torch_npu's NPUGraph. The only file that touches torch_npu."""

from __future__ import annotations

from typing import Any

import torch

from airgraph.errors import UnsupportedGraph
from airgraph.runtime.accelerator import AcceleratorRuntime, DevicePool, Failure
from airgraph.runtime.base import Capabilities

__all__ = ["NpuRuntime"]


class NpuRuntime(AcceleratorRuntime):
    """Raises UnsupportedGraph where torch_npu or a device is missing."""

    device_type = "npu"
    capabilities = Capabilities(external_events=True, rng_in_graphs=True, stream_priorities=True, max_streams=1980)
    needs_warm_up = False
    failures = (Failure("out of memory", "the device is out of memory"),)

    def __init__(self) -> None:
        super().__init__()
        try:
            import torch_npu  # noqa: F401
        except ImportError as error:
            raise UnsupportedGraph(f"torch_npu cannot be imported ({error})") from error
        if not torch.npu.is_available():  # type: ignore[attr-defined]
            raise UnsupportedGraph("torch_npu finds no device")

    @property
    def module(self) -> Any:
        return torch.npu  # type: ignore[attr-defined]

    def new_graph(self) -> Any:
        return torch.npu.NPUGraph()  # type: ignore[attr-defined]

    def stop_routing(self, device: torch.device, pool: DevicePool) -> None:
        import torch_npu

        torch_npu._C._npu_endAllocateToPool(device.index or 0, pool.handle)
