"""Ascend graphs, by torch_npu's NPUGraph. Nothing else of the runtime touches torch_npu."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch

from airgraph.errors import UnsupportedGraph
from airgraph.runtime.accelerator.runtime import AcceleratorRuntime, Failure
from airgraph.runtime.protocol import Capabilities
from airgraph.torch_internals import allocators

__all__ = ["NpuRuntime"]


class NpuRuntime(AcceleratorRuntime):
    """Raises UnsupportedGraph where torch_npu or a device is missing."""

    device_type = "npu"
    capabilities = Capabilities(rng_in_graphs=True, max_streams=1980)
    # torch_npu hands these their seed from the host.
    repeated_random = frozenset({"bernoulli", "bernoulli_", "multinomial", "randperm", "normal"})
    # By the numbers of acl/error_codes/rt_error_codes.h.
    failures = (
        Failure(r"out of memory|\b207001\b", "the device is out of memory", has_culprit=False),
        Failure(
            r"\b107025\b|unjoined",
            "work forked to another stream does not join the graph's stream again; wait for its event before the end",
        ),
        Failure(
            r"\b(10702[78]|10703[01]|107041)\b",
            "it waits for the device or reads a value on the host, which a capture does not allow",
        ),
        Failure(
            r"\b20700[578]\b",
            "the device has no stream or event left for the capture; capture fewer shapes",
            has_culprit=False,
        ),
        Failure(
            r"\b107024\b",
            "it waits for an event recorded outside the capture; let that stream wait for the graph's first",
        ),
        Failure(
            r"\b(10703[268]|507903)\b",
            "an operator before it, or another thread, did what a capture does not allow; see capture_error_mode",
            may_pass=True,
        ),
        Failure(
            r"aclop|AclSetCompileopt|no such operator",
            "torch_npu has no aclnn kernel for it, and the kernel it falls back to cannot be captured",
        ),
    )

    def __init__(self) -> None:
        try:
            import torch_npu  # noqa: F401
        except ImportError as error:
            raise UnsupportedGraph(f"torch_npu cannot be imported ({error})") from error
        if not torch.npu.is_available():  # type: ignore[attr-defined]
            raise UnsupportedGraph("torch_npu finds no device")
        super().__init__()

    @property
    def module(self) -> Any:
        return torch.npu  # type: ignore[attr-defined]

    def settings(self) -> Hashable:
        matmul, conv = torch.npu.matmul, torch.npu.conv  # type: ignore[attr-defined]
        return matmul.allow_hf32, matmul.cube_math_type, conv.allow_hf32

    def new_graph(self) -> Any:
        return torch.npu.NPUGraph()  # type: ignore[attr-defined]

    def new_external_event(self) -> Any:
        return torch.npu.ExternalEvent()  # type: ignore[attr-defined]

    def start_routing(self, device: torch.device, pool_handle: Any) -> None:
        allocators.npu_start_routing(device, pool_handle)

    def stop_routing(self, device: torch.device, pool_handle: Any) -> None:
        allocators.npu_stop_routing(device, pool_handle)

    def release_pool(self, device: torch.device, pool_handle: Any) -> None:
        allocators.npu_release_pool(device, pool_handle)
