"""The protocol that every device serves. Captures know devices only through it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch

from airgraph.errors import ReplayError
from airgraph.memory.footprint import Footprint
from airgraph.memory.occupancy import Slot
from airgraph.memory.pool import MemoryPool
from airgraph.options import Options
from airgraph.program.program import CaptureProgram
from airgraph.runtime.choices import Choice
from airgraph.runtime.problem import InputProblem
from airgraph.runtime.recording.inputs import CaptureInput
from airgraph.runtime.timeline import Span

__all__ = [
    "Capabilities",
    "DeviceEvent",
    "DeviceGraph",
    "DeviceRuntime",
    "DeviceStream",
    "FailedCall",
    "LocksItsPool",
]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What graphs of a device can do.

    rng_in_graphs: random operators draw fresh numbers at each replay.
    max_streams: how many streams may exist at once; None: no limit is known.
    follows_moves: an argument that is used in place and moves costs a graph nothing, and no recapture.
    runs_to_capture: operators must have run once before they are captured; a first call is that run.
    ranks_run_alike: a rank may replay a collective only where the others do, too.
    """

    rng_in_graphs: bool
    max_streams: int | None
    follows_moves: bool = False
    runs_to_capture: bool = False
    ranks_run_alike: bool = True


class FailedCall(Exception):
    """The call that was run while it was captured has failed with `error`, as it would have eagerly. It may have
    written by then, so it is not run again."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class DeviceStream(Protocol):
    """A queue of work, as torch.cuda.Stream."""

    def synchronize(self) -> None: ...

    def wait_event(self, event: Any) -> None: ...


class DeviceEvent(Protocol):
    """A point in a stream's order, as torch.cuda.Event."""

    def record(self, stream: Any = None) -> None: ...

    def wait(self, stream: Any = None) -> None: ...

    def synchronize(self) -> None: ...


class DeviceGraph(Protocol):
    """One recording, ready to replay. Not thread-safe: the caller holds the replay lock of its pool.

    threads: of the host, that replay it at most. threads_reason: why its streams run one after another on them, or
    empty. footprint: what it takes of the pool. copied_nbytes: what operators of
    the graph copy at each replay. first_outputs: what the call returns that the graph was recorded for, where recording
    has run it; else None. products: how those that were chosen for are computed, and how many of each.
    """

    nodes: int
    streams: int
    threads: int
    threads_reason: str
    footprint: Footprint
    copied_nbytes: int
    first_outputs: list[Any] | None
    products: Mapping[Choice, int]

    def packed(self) -> Mapping[int, int]:
        """Copies of weights that it keeps beside the pool, which graphs may share: bytes by address."""
        ...

    def captured_address(self, index: int) -> int:
        """Where argument `index`, used in place, was at the last replay, or when the graph was recorded."""
        ...

    def held_outputs(self) -> int:
        """How many blocks of output memory of the pool's last replay the caller still holds."""
        ...

    def run(self, args: list[Any]) -> list[Any] | InputProblem:
        """Copy inputs, replay once on the current stream, return the program's outputs. Raises ReplayError.

        Ask under the pool's replay lock. If `args` do not fit the recording, nothing happens and the answer says which
        does not.
        """
        ...

    def blank(self, args: list[Any]) -> list[Any]:
        """What `run` would return, with zeros for the values that the graph makes. Nothing is replayed."""
        ...

    def replay(self) -> None:
        """Replay once on the inputs as they lie. Raises ReplayError."""
        ...

    def occupancy(self) -> Sequence[Slot]:
        """Where each intermediate lies in the pool's arena; empty where the device's allocator decides."""
        ...

    def describe(self) -> Sequence[str]:
        """The recorded calls for a person to read, a line each; empty where the device does not tell."""
        ...

    def profile(self) -> Sequence[Span]:
        """When each call runs, of a run on memory of its own.

        Raises ReplayError, or UnsupportedGraph, where one fails on what stands for the arguments.
        """
        ...

    def close(self) -> None:
        """Before it is dropped: outputs that the caller holds are made independent of the pool."""
        ...


@runtime_checkable
class LocksItsPool(Protocol):
    """A DeviceGraph that can take its pool's replay lock by itself, which saves the caller some time."""

    def call(self, args: list[Any]) -> list[Any] | InputProblem:
        """As `run`, without the replay lock. Raises ReplayError where the replay lock cannot be held."""
        ...

    @property
    def failure(self) -> type[Exception]:
        """What a usual call raises where its replay fails."""
        ...

    def error_of(self, failure: Any) -> ReplayError:
        """That in the user's terms."""
        ...

    def usual_call(
        self,
        *,
        numbers: Sequence[tuple[int, Any]],
        tally: list[int],
        with_care: set[int],
        is_capturing: Callable[[], bool] | None,
    ) -> Callable[[Sequence[Any]], list[Any] | None]:
        """A `call` with as little as can be around it: None, and nothing done, where something is not as usual.

        numbers: those that the arguments must be, of their types, by index. tally: its number is
        counted up.
        with_care: while anything is in it, no call is usual. is_capturing: see `DeviceRuntime.capturing_on`; None:
        never, or the graph asks itself.
        """
        ...


class DeviceRuntime(Protocol):
    """A device that graphs can be recorded for. One object serves all devices of its type and any thread.

    `device` is a torch.device of this type; None: the current one.
    """

    device_type: str
    capabilities: Capabilities

    def capturing_on(self, device: torch.device) -> Callable[[], bool] | None:
        """What tells whether a device's current stream is being captured, by whomever. None: it never is."""
        ...

    def open_pool(self, device: torch.device | None = None) -> MemoryPool:
        """A new, empty pool. `close()` it when no more graphs are to be recorded into it."""
        ...

    def adopt_pool(self, handle: object, device: torch.device) -> MemoryPool | None:
        """The pool behind a handle of the device's own kind, such as torch.cuda's; None if it is not one."""
        ...

    def record(
        self,
        program: CaptureProgram,
        inputs: Sequence[CaptureInput],
        pool: Any,
        options: Options,
        call: list[Any] | None = None,
    ) -> DeviceGraph:
        """Record the program for these inputs, into a pool that this runtime opened, under that pool's replay lock.

        call: the arguments, where the recording may run the call that it is for: once, in earnest, see
        `DeviceGraph.first_outputs`. Else, whatever it runs, arguments and torch's generators are as before. Raises
        UnsupportedGraph, also for a recording that would pass `memory_budget`, after which device and pool are usable
        as before; its `outputs` are the call's where that was run. Raises FailedCall where it failed halfway.
        """
        ...

    def stream(self, tag: str, priority: int = 0) -> DeviceStream:
        """The stream of this name, made at its first use with this priority (lower is more urgent)."""
        ...

    def event(self, tag: str, *, external: bool = False) -> DeviceEvent:
        """The event of this name, made at its first use.

        external: one that joins a graph and work outside it. Others join work within one graph, or outside all.
        """
        ...

    def synchronize(self) -> None:
        """Wait for all work of the current device."""
        ...
