"""A captured graph of an accelerator, ready to replay."""

from __future__ import annotations

from typing import Any

import torch

from airgraph.errors import ReplayError
from airgraph.memory.footprint import Footprint
from airgraph.memory.occupancy import Slot
from airgraph.memory.pool import Lease
from airgraph.options import Options
from airgraph.program.program import CaptureProgram
from airgraph.runtime.base import InputProblem
from airgraph.runtime.cpu.engine import engine
from airgraph.runtime.device_capture import Recorded
from airgraph.runtime.input_forms import BufferForm, bind_inputs
from airgraph.runtime.interpretation import Owned, finish_output

__all__ = ["AcceleratorGraph"]


class AcceleratorGraph:
    """Serves `DeviceGraph`. Its outputs lie in the pool; an output still held is given memory of its own."""

    streams = 1

    def __init__(
        self,
        program: CaptureProgram,
        args: list[Any],
        buffers: dict[int, tuple[BufferForm, torch.Tensor]],
        recorded: Recorded,
        lease: Lease,
        footprint: Footprint,
        options: Options,
    ) -> None:
        self._graph = recorded.graph
        self._lease = lease
        self.footprint = footprint
        native = engine()
        if lease.pool.neighbours is None:
            lease.pool.neighbours = native.DeviceNeighbours()
        policy = getattr(native.LiveOutputs, options.live_outputs)
        self._launch = native.DeviceLaunch(
            self._graph.replay, str(program.device), policy, lease.pool.neighbours, lease.pool.turn, program.name
        )
        bind_inputs(self._launch, program, args, buffers, options)
        self._outputs: list[Any] = []
        made: list[torch.Tensor] = []
        for out in recorded.outputs:
            if isinstance(out, torch.Tensor):
                self._outputs.append(Owned(len(made)))
                made.append(out)
            else:
                self._outputs.append(out)
        for out in made:
            self._launch.add_output(out)
        self._all_owned = len(made) == len(self._outputs)
        self.nodes = recorded.calls
        self.copied_nbytes = recorded.copied_nbytes

    def captured_address(self, index: int) -> int:
        return int(self._launch.captured_address(index))

    def held_outputs(self) -> int:
        return int(self._launch.held_outputs())

    def run(self, args: list[Any]) -> list[Any] | InputProblem:
        return self._run(args, has_turn=True)

    def call(self, args: list[Any]) -> list[Any] | InputProblem:
        return self._run(args, has_turn=False)

    def _run(self, args: list[Any], *, has_turn: bool) -> list[Any] | InputProblem:
        try:
            made: list[Any] | InputProblem = self._launch.run(args, has_turn)
        except ReplayError:
            raise
        except RuntimeError as error:
            raise _replay_error(error) from error
        if self._all_owned or isinstance(made, tuple):
            return made
        return [finish_output(out, made, args) for out in self._outputs]

    def blank(self, args: list[Any]) -> list[Any]:
        made = self._launch.blank()
        return [finish_output(out, made, args) for out in self._outputs]

    def replay(self) -> None:
        try:
            self._graph.replay()
        except RuntimeError as error:
            raise _replay_error(error) from error

    def occupancy(self) -> tuple[Slot, ...]:
        return ()

    def describe(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        self._launch.close()


def _replay_error(error: RuntimeError) -> ReplayError:
    return ReplayError(f"the replay failed on the device: {error}")
