"""The call that a capture is made for, where the device has it run before."""

from __future__ import annotations

from typing import Any

from airgraph.runtime.accelerator.graph import AcceleratorGraph
from airgraph.runtime.recording.outputs import finish_output

__all__ = ["FirstCall"]


class FirstCall:
    """Results of a run in the pool, whose memory goes back to it: what they hold stays until the pool is written."""

    def __init__(self, results: list[Any], args: list[Any], graph: AcceleratorGraph) -> None:
        """results: as Walk.run gives them. args: of the call."""
        self._args = args
        self._launch = graph.apart()
        self._outputs = graph.outputs_of(results, self._launch)

    def outputs(self) -> list[Any]:
        """What the call returns, in memory of its own, copied on the current stream. Ask once."""
        made = self._launch.moved_out()
        return [finish_output(out, made, self._args) for out in self._outputs]
