"""The names of `torch.npu` that work and memory are reached by, where the target is the CPU: airgraph's own."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch

from airgraph import cpu
from airgraph.runtime.cpu.streams import default_stream
from airgraph.standin import memory

__all__ = ["names"]


class Stream(cpu.Stream):
    """As torch_npu makes them: the device comes first, and there is one."""

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        super().__init__(priority)
        self.device = torch.device("cpu")


def graph(
    npu_graph: cpu.CPUGraph,
    pool: Any = None,
    stream: cpu.Stream | None = None,
    auto_dispatch_capture: bool = False,
    capture_error_mode: str = "global",
) -> AbstractContextManager[None]:
    """`airgraph.cpu.graph`, with torch_npu's arguments.

    auto_dispatch_capture: notes operators whose numbers `NPUGraph.update` is to change, which a graph of the CPU does
    not have, so that there is nothing to note.
    """
    on = Stream() if stream is None else stream
    return cpu.graph(npu_graph, pool=pool, stream=on, capture_error_mode=capture_error_mode)


def _get_rng_state(device: Any = None) -> torch.Tensor:
    return torch.default_generator.get_state()


def _set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    torch.default_generator.set_state(state)


def _set_rng_state_all(states: Iterable[torch.Tensor]) -> None:
    for state in states:
        _set_rng_state(state)


def names() -> dict[str, Any]:
    return {
        "Event": cpu.Event,
        "NPUGraph": cpu.CPUGraph,
        "Stream": Stream,
        "current_stream": lambda device=None: cpu.current_stream(),
        "default_stream": lambda device=None: default_stream(),
        "empty_cache": lambda: None,
        "get_rng_state": _get_rng_state,
        "get_rng_state_all": lambda: [_get_rng_state()],
        "graph": graph,
        "graph_pool_handle": cpu.graph_pool_handle,
        "initial_seed": torch.default_generator.initial_seed,
        "max_memory_allocated": lambda device=None: memory.peak_nbytes(),
        "max_memory_reserved": lambda device=None: memory.peak_nbytes(),
        "mem_get_info": lambda device=None: memory.free_and_total_nbytes(),
        "memory_allocated": lambda device=None: memory.resident_nbytes(),
        "memory_reserved": lambda device=None: memory.resident_nbytes(),
        "reset_peak_memory_stats": lambda device=None: memory.reset_peak(),
        "set_rng_state": _set_rng_state,
        "set_rng_state_all": _set_rng_state_all,
        "stream": cpu.stream,
        "synchronize": lambda device=None: cpu.synchronize(),
    }
