"""The protocol that every device serves. Captures know devices only through it."""

from __future__ import annotations

from typing import Any, Protocol

from airgraph.memory.pool import MemoryPool
from airgraph.options import Options
from airgraph.program.program import CaptureProgram

__all__ = ["DeviceGraph", "DeviceRuntime"]


class DeviceGraph(Protocol):
    """One recording, ready to replay. Owns its memory; not thread-safe: the caller serialises."""

    nodes: int
    streams: int
    arena_nbytes: int
    copied_nbytes: int

    def check(self, args: list[Any]) -> tuple[str, int] | None:
        """None if `args` fit the recording, else ("moved" | "mismatched", index of the argument)."""
        ...

    def captured_address(self, index: int) -> int:
        """Where argument `index`, used in place, was when the graph was recorded."""
        ...

    def held_outputs(self) -> int:
        """How many blocks of output memory the caller still holds."""
        ...

    def run(self, args: list[Any]) -> list[Any]:
        """Copy inputs, replay once, return the program's outputs. Raises ReplayError."""
        ...

    def replay(self) -> None:
        """Replay once on the inputs as they lie. Raises ReplayError."""
        ...


class DeviceRuntime(Protocol):
    """A device that graphs can be recorded for."""

    device_type: str

    def open_pool(self) -> MemoryPool: ...

    def record(self, program: CaptureProgram, args: list[Any], pool: MemoryPool, options: Options) -> DeviceGraph:
        """Record the program for these arguments without executing it. Raises UnsupportedGraph."""
        ...

    def synchronize(self) -> None: ...
