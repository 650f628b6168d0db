"""The CPU as a device that graphs are recorded for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from airgraph.errors import UnsupportedGraph
from airgraph.memory.pool import ArenaPool
from airgraph.options import Options
from airgraph.program.program import CaptureProgram
from airgraph.runtime.cpu import streams
from airgraph.runtime.cpu.graph import CpuGraph
from airgraph.runtime.cpu.record import record
from airgraph.runtime.engine.loading import engine
from airgraph.runtime.protocol import Capabilities
from airgraph.runtime.recording.collection import uncollected
from airgraph.runtime.recording.inputs import CaptureInput

__all__ = ["CpuRuntime"]


class CpuRuntime:
    """Serves `DeviceRuntime` by the native tape."""

    device_type = "cpu"
    capabilities = Capabilities(rng_in_graphs=True, max_streams=None, follows_moves=True, ranks_run_alike=False)

    def __init__(self) -> None:
        self._streams: dict[str, streams.Stream] = {}
        self._events: dict[str, streams.Event] = {}

    def open_pool(self, device: torch.device | None = None) -> ArenaPool:
        if device is not None and device.index:
            raise UnsupportedGraph("there is one CPU, the device 'cpu'")
        return ArenaPool(engine().ReplayLock())

    def adopt_pool(self, handle: object, device: torch.device) -> ArenaPool | None:
        return None

    def synchronize(self) -> None:
        """Nothing runs behind the caller's back on CPU."""

    def stream(self, tag: str, priority: int = 0) -> streams.Stream:
        return self._streams.setdefault(tag, streams.Stream(priority))

    def event(self, tag: str, *, external: bool = False) -> streams.Event:
        return self._events.setdefault(tag, streams.Event())

    def capturing_on(self, device: torch.device) -> None:
        """Operators find out by themselves whether they are noted by `airgraph.cpu.graph`."""

    def record(
        self,
        program: CaptureProgram,
        inputs: Sequence[CaptureInput],
        pool: ArenaPool,
        options: Options,
        call: list[Any] | None = None,
    ) -> CpuGraph:
        with uncollected():
            return record(program, inputs, pool, options)
