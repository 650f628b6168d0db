"""A captured graph of an accelerator, ready to replay."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import torch

from airgraph.errors import ReplayError
from airgraph.memory.footprint import Footprint
from airgraph.memory.occupancy import Slot
from airgraph.memory.pool import Lease
from airgraph.options import Options
from airgraph.program.program import CaptureProgram
from airgraph.runtime.accelerator.capture import Recorded
from airgraph.runtime.engine.loading import engine
from airgraph.runtime.problem import InputProblem, ProblemKind
from airgraph.runtime.recording.inputs import CaptureInput, bind_inputs
from airgraph.runtime.recording.launched import LaunchedGraph
from airgraph.runtime.recording.outputs import Output, Owned
from airgraph.runtime.timeline import Span

__all__ = ["AcceleratorGraph"]


class AcceleratorGraph(LaunchedGraph):
    """Serves `DeviceGraph`. Its outputs lie in the pool; an output still held is given memory of its own."""

    def __init__(
        self,
        program: CaptureProgram,
        inputs: Sequence[CaptureInput],
        buffers: Mapping[int, torch.Tensor],
        recorded: Recorded,
        lease: Lease,
        footprint: Footprint,
        options: Options,
        settings: Callable[[], Hashable],
    ) -> None:
        """settings: of the device, now; those of the capture are a condition of each call."""
        self._settings, self._captured_settings = settings, settings()
        self._graph = recorded.graph
        self._lease = lease
        self.footprint = footprint
        native = engine()
        if lease.pool.neighbours is None:
            lease.pool.neighbours = native.DeviceNeighbours()
        policy = getattr(native.LiveOutputs, options.live_outputs)
        launch = native.DeviceLaunch(
            self._graph.replay, str(program.device), policy, lease.pool.neighbours, lease.pool.replay_lock, program.name
        )
        bind_inputs(launch, inputs, buffers)
        outputs: list[Output] = []
        made: list[torch.Tensor] = []
        for out in recorded.outputs:
            if isinstance(out, torch.Tensor):
                outputs.append(Owned(len(made)))
                made.append(out)
            else:
                outputs.append(out)
        for out in made:
            launch.add_output(out)
        super().__init__(launch, outputs)
        self.nodes = recorded.calls
        self.threads = 1
        self.copied_nbytes = recorded.copied_nbytes
        self.streams = recorded.streams
        self._held = recorded.held

    def error_of(self, failure: Any) -> ReplayError:
        return ReplayError(f"the replay failed on the device: {failure}")

    def _run(self, args: list[Any], is_locked: bool) -> list[Any] | InputProblem:
        if self._settings() != self._captured_settings:
            return InputProblem(ProblemKind.SETTINGS)
        return super()._run(args, is_locked)

    def replay(self) -> None:
        try:
            self._graph.replay()
        except RuntimeError as error:
            raise self.error_of(error) from error

    def occupancy(self) -> tuple[Slot, ...]:
        return ()

    def describe(self) -> tuple[str, ...]:
        return ()

    def profile(self) -> tuple[Span, ...]:
        """Nothing: a device replays its graph as one."""
        return ()

    def close(self) -> None:
        self._launch.close()
