"""A captured graph of an accelerator, ready to replay."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import torch

from airgraph.errors import ReplayError
from airgraph.memory.occupancy import Slot
from airgraph.memory.pool import Lease
from airgraph.options import Options
from airgraph.program.program import CaptureProgram
from airgraph.runtime.accelerator.capture import Recorded
from airgraph.runtime.engine.loading import engine
from airgraph.runtime.recording.inputs import CaptureInput, bind_inputs
from airgraph.runtime.recording.launched import LaunchedGraph
from airgraph.runtime.recording.outputs import Constant, Output, Owned
from airgraph.runtime.timeline import Span

__all__ = ["AcceleratorGraph"]


class AcceleratorGraph(LaunchedGraph):
    """Serves `DeviceGraph`. Its outputs lie in the pool; an output still held is given memory of its own."""

    def __init__(
        self,
        program: CaptureProgram,
        inputs: Sequence[CaptureInput],
        lease: Lease,
        options: Options,
        settings: Callable[[], Hashable] | None,
    ) -> None:
        """Before its capture: `begin`, `bind`, and `complete` once there is one."""
        self._lease = lease
        self._graph: Any = None
        self.footprint = lease.footprint
        native = engine()
        if lease.pool.neighbours is None:
            lease.pool.neighbours = native.DeviceNeighbours()
        self._policy = getattr(native.LiveOutputs, options.live_outputs)
        self._program = program
        super().__init__(self._new_launch(), [], settings)

    def begin(self) -> None:
        """The pool is about to be written: work on the current stream comes after that of its last call."""
        self._launch.begin()

    def meets_a_capture(self) -> bool:
        """Whether work now would become part of somebody's capture."""
        return bool(self._launch.meets_a_capture())

    def captured(self, *, others: bool) -> None:
        """others: something that is none of the graphs' has been taken from the pool, where earlier ones may write."""
        self._launch.captured(others=others)

    def bind(self, inputs: Sequence[CaptureInput], buffers: Mapping[int, torch.Tensor]) -> None:
        bind_inputs(self._launch, inputs, buffers)

    def copy_inputs(self, args: list[Any]) -> None:
        """Into the buffers, as each call does."""
        self._launch.copy_inputs(args)

    def outputs_of(self, results: list[Any], launch: Any) -> list[Output]:
        """How a call's outputs are made of `results`, as a walk gives them; those in memory of the pool become the
        launch's."""
        made = [out for out in results if isinstance(out, torch.Tensor)]
        kept = engine().held_elsewhere(made)
        outputs: list[Output] = []
        owned = 0
        for out in results:
            if not isinstance(out, torch.Tensor):
                outputs.append(out)
            elif kept.pop(0):
                # An operator returns what it keeps: nobody else's memory.
                outputs.append(Constant(out))
            else:
                launch.add_output(out)
                outputs.append(Owned(owned))
                owned += 1
        return outputs

    def apart(self) -> Any:
        """A launch beside this graph's, for outputs of another run in the same pool."""
        return self._new_launch()

    def complete(
        self, recorded: Recorded, first_outputs: list[Any] | None, profile: Callable[[], tuple[Span, ...]]
    ) -> None:
        """first_outputs, profile: see `DeviceGraph`."""
        self._graph = recorded.graph
        self._launch.replay = recorded.graph.replay
        self.set_outputs(self.outputs_of(recorded.outputs, self._launch))
        self.nodes = recorded.calls
        self.threads = 1
        self.threads_reason = ""
        self.copied_nbytes = recorded.copied_nbytes
        self.streams = recorded.streams
        self._held = recorded.held
        self.first_outputs = first_outputs
        self._profile = profile

    def _new_launch(self) -> Any:
        pool = self._lease.pool
        return engine().DeviceLaunch(
            replay=None,
            device=str(self._program.device),
            policy=self._policy,
            neighbours=pool.neighbours,
            replay_lock=pool.replay_lock,
            name=self._program.name,
        )

    def error_of(self, failure: Any) -> ReplayError:
        return ReplayError(f"the replay failed on the device: {failure}")

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
        return self._profile()

    def close(self) -> None:
        self._launch.close()
