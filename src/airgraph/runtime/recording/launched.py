"""What the graphs of all devices have in common: a launch of the engine, and what becomes of its results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from airgraph.errors import ReplayError
from airgraph.runtime.problem import InputProblem
from airgraph.runtime.recording.outputs import Output, Owned, finish_output

__all__ = ["LaunchedGraph"]


class LaunchedGraph(ABC):
    """Serves the calls of `DeviceGraph`."""

    # What a replay that fails raises, of which `error_of` makes a ReplayError.
    failure: type[Exception] = RuntimeError

    def __init__(self, launch: Any, outputs: list[Output]) -> None:
        self._launch = launch
        self.first_outputs: list[Any] | None = None
        self.set_outputs(outputs)
        self.captured_address = launch.captured_address
        self.held_outputs = launch.held_outputs

    def set_outputs(self, outputs: list[Output]) -> None:
        """What becomes of the results of the launch."""
        self._outputs = outputs
        self._all_owned = all(type(out) is Owned for out in outputs)

    @abstractmethod
    def error_of(self, failure: Any) -> ReplayError:
        """The error of a failed replay in the user's terms."""

    def run(self, args: list[Any]) -> list[Any] | InputProblem:
        return self._run(args, True)

    def call(self, args: list[Any]) -> list[Any] | InputProblem:
        return self._run(args, False)

    def blank(self, args: list[Any]) -> list[Any]:
        made = self._launch.blank()
        return [finish_output(out, made, args) for out in self._outputs]

    def _run(self, args: list[Any], is_locked: bool) -> list[Any] | InputProblem:
        try:
            made: list[Any] | InputProblem = self._launch.run(args, is_locked)
        except ReplayError:
            raise
        except self.failure as failure:
            raise self.error_of(failure) from failure
        if self._all_owned or isinstance(made, InputProblem):
            return made
        return [finish_output(out, made, args) for out in self._outputs]
