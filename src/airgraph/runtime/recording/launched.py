"""What the graphs of all devices have in common: a launch of the engine, and what becomes of its results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from airgraph.errors import ReplayError
from airgraph.runtime.choices import Choice
from airgraph.runtime.engine.loading import engine
from airgraph.runtime.problem import InputProblem, ProblemKind
from airgraph.runtime.recording.outputs import Output, Owned, finish_output

__all__ = ["LaunchedGraph"]


class LaunchedGraph(ABC):
    """Serves the calls of `DeviceGraph`."""

    # What a replay that fails raises, of which `error_of` makes a ReplayError.
    failure: type[Exception] = RuntimeError

    def __init__(self, launch: Any, outputs: list[Output], settings: Callable[[], Hashable] | None = None) -> None:
        """settings: of the device, now; those of the capture are a condition of each call. None: it has none."""
        self._settings = settings
        self._captured_settings = None if settings is None else settings()
        self._launch = launch
        self.first_outputs: list[Any] | None = None
        self.products: Mapping[Choice, int] = {}
        self.set_outputs(outputs)
        self.captured_address = launch.captured_address
        self.held_outputs = launch.held_outputs

    def packed(self) -> Mapping[int, int]:
        return {}

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

    def usual_call(
        self,
        *,
        numbers: Sequence[tuple[int, Any]],
        tally: list[int],
        with_care: set[int],
        is_capturing: Callable[[], bool] | None,
    ) -> Callable[[Sequence[Any]], list[Any] | None]:
        return engine().UsualCall(
            launch=self._launch,
            numbers=list(numbers),
            tally=tally,
            with_care=with_care,
            is_capturing=is_capturing,
            settings=self._settings,
            captured_settings=self._captured_settings,
            finish=None if self._all_owned else self._finished,
        )

    def blank(self, args: list[Any]) -> list[Any]:
        return self._finished(self._launch.blank(), args)

    def _run(self, args: list[Any], is_locked: bool) -> list[Any] | InputProblem:
        if self._settings is not None and self._settings() != self._captured_settings:
            return InputProblem(ProblemKind.SETTINGS)
        try:
            made: list[Any] | InputProblem = self._launch.run(args, is_locked)
        except ReplayError:
            raise
        except self.failure as failure:
            raise self.error_of(failure) from failure
        if self._all_owned or isinstance(made, InputProblem):
            return made
        return self._finished(made, args)

    def _finished(self, made: list[Any], args: Sequence[Any]) -> list[Any]:
        return [finish_output(out, made, args) for out in self._outputs]
