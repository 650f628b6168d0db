"""A recorded program on the CPU, ready to replay."""

from __future__ import annotations

from collections import Counter
from typing import Any

from airgraph.errors import ReplayError
from airgraph.memory.occupancy import Slot
from airgraph.program.stream_marks import DEFAULT
from airgraph.runtime.cpu.assemble import Assembled
from airgraph.runtime.cpu.profile import profile
from airgraph.runtime.cpu.tape import Recording
from airgraph.runtime.engine.loading import engine
from airgraph.runtime.recording.launched import LaunchedGraph
from airgraph.runtime.recording.outputs import Output
from airgraph.runtime.timeline import Span

__all__ = ["CpuGraph", "InputBuffer", "replay_error"]


class InputBuffer:
    """What the tape reads of one input buffer; it follows when the buffer moves."""

    def __init__(self, nbytes: int) -> None:
        self.data = engine().bytes_at(0, nbytes)

    def move_to(self, address: int) -> None:
        engine().point_at(self.data, address)


class CpuGraph(LaunchedGraph):
    """Serves `DeviceGraph`."""

    def __init__(
        self,
        recording: Recording,
        assembled: Assembled,
        launch: Any,
        outputs: list[Output],
        buffers: list[InputBuffer],
        copied_nbytes: int,
    ) -> None:
        super().__init__(launch, outputs)
        self.failure = engine().ReplayFailure
        self._recording = recording
        self._assembled = assembled
        self._buffers = buffers
        self.copied_nbytes = copied_nbytes
        self.nodes = len(recording.calls)
        self.streams = recording.order.streams
        self.threads = assembled.threads
        self.threads_reason = assembled.threads_reason
        self._exact = assembled.exact
        self.footprint = assembled.lease.footprint
        self.tiers = Counter(assembled.tiers)
        self.products = Counter(assembled.products.values())
        self.arena = assembled.arena

    def packed(self) -> dict[int, int]:
        made = [operand.panels for operand in self._assembled.packed]
        return {each.address: each.nbytes for each in made if each.nbytes}

    def error_of(self, failure: Any) -> ReplayError:
        return replay_error(self._recording, failure)

    def replay(self) -> None:
        try:
            self._launch.replay()
        except self.failure as failure:
            raise self.error_of(failure) from failure

    def occupancy(self) -> tuple[Slot, ...]:
        calls = self._recording.calls
        return tuple(
            # Before the first call there is a step.
            Slot(offset, life.nbytes, min(life.uses) - 1, max(life.uses) - 1, calls[min(life.uses) - 1].op.name())
            for life, offset in zip(self.arena.lifetimes, self.arena.plan.offsets, strict=True)
        )

    def describe(self) -> list[str]:
        """Operator, tier, where its results lie and how large they are, stream and the user's line."""
        offsets = dict(zip(self.arena.buffers, self.arena.plan.offsets, strict=True))
        lines = [f"{'operator':40} {'tier':10} {'result at':>12} {'bytes':>12} {'stream':>10}  line"]
        streams = self._recording.order.stream_of
        for call, tier, stream in zip(self._recording.calls, self._assembled.tiers, streams, strict=True):
            ref = call.result()
            place, nbytes, tag = "-", 0, self._recording.streams[stream] or DEFAULT
            if ref is not None:
                buffer = self._recording.buffers[ref.buffer]
                place = str(offsets[ref.buffer]) if ref.buffer in offsets else buffer.kind.value
                nbytes = buffer.nbytes
            lines.append(f"{call.op.name():40} {tier:10} {place:>12} {nbytes:>12} {tag:>10}  {call.source}")
        return lines

    def profile(self) -> tuple[Span, ...]:
        try:
            return profile(
                self._recording, self.arena, self.threads, exact=self._exact, products=self._assembled.products
            )
        except self.failure as failure:
            raise self.error_of(failure) from failure

    def close(self) -> None:
        """Nothing to do: outputs own their memory."""


def replay_error(recording: Recording, failure: Exception) -> ReplayError:
    """The error of a failed replay in the user's terms."""
    index, message = failure.args
    call = recording.calls[index]
    where = f" at {call.source}" if call.source else ""
    return ReplayError(f"{call.op.name()}{where} failed in replay: {message}")
