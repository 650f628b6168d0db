"""What runs where no capture can: the FX graph, operator by operator, or what it was lowered from."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from airgraph.capture.key import GraphKey
from airgraph.capture.ledger import GraphRecord, ledger
from airgraph.capture.warmup import CannotGoOn
from airgraph.errors import CapturedElsewhere, NotAdmitted, Overlapping, SpoiledCapture, Unsuited, UnsupportedGraph
from airgraph.program.collectives import Counted
from airgraph.program.inputs import InputRole, with_copies
from airgraph.program.program import CaptureProgram
from airgraph.runtime.engine.loading import engine
from airgraph.torch_internals.dispatcher import without_autocast
from airgraph.torch_internals.fake_tensors import FakeTensorMode
from airgraph.user_warning import warn_user

__all__ = ["Fallback", "Mode"]

# Captures of one key that others may spoil one after the other before its calls are eager for good.
_MOST_SPOILED = 8


class Mode(enum.Enum):
    """How calls of a program are served."""

    CAPTURED = "captured"
    # But for keys that could not be captured.
    PARTLY = "partly captured"
    EAGER = "eager"


class Fallback:
    """Eager calls of one program, and why they are: each reason is a row in the report, with one warning."""

    def __init__(self, program: CaptureProgram, uncaptured: Callable[..., Sequence[Any]] | None) -> None:
        """uncaptured: what the program was lowered from, for arguments that it is not right for."""
        self._program = program
        self._uncaptured = uncaptured
        self._written = [plan.index for plan in program.inputs if plan.role is InputRole.MUTATED]
        self._eager_keys: set[GraphKey] = set()
        # By key, how many captures were spoiled since one succeeded.
        self._spoiled: Counter[GraphKey] = Counter()
        self.mode = Mode.CAPTURED
        # The row of a program that is never captured, and whether it stands in the report.
        self._record: GraphRecord | None = None
        self._is_reported = False
        self._warned: set[str] = set()

    def serves(self, key: GraphKey) -> bool:
        """Whether calls of this key are never captured."""
        return self.mode is not Mode.CAPTURED and (self.mode is Mode.EAGER or key in self._eager_keys)

    def take_all(self, reason: str, *, obstacle: UnsupportedGraph | None = None, warn: bool = True) -> None:
        """Every call from now on."""
        self.mode = Mode.EAGER
        self._record = self._note(reason, "", obstacle, warn=warn)
        self._is_reported = True

    def take(self, key: GraphKey, obstacle: UnsupportedGraph) -> None:
        """Calls of one key from now on; only this one where the next capture may succeed."""
        if isinstance(obstacle, CapturedElsewhere):
            return
        if isinstance(obstacle, SpoiledCapture):
            self._spoiled[key] += 1
            if self._spoiled[key] < _MOST_SPOILED:
                self.warn_once(
                    "spoiled",
                    f"{self._program.name} runs eagerly once: {obstacle}. The next call captures anew.",
                )
                return
        self._eager_keys.add(key)
        if self.mode is Mode.CAPTURED:
            self.mode = Mode.PARTLY
        self._note(str(obstacle), str(key), obstacle)

    def captured(self, key: GraphKey) -> None:
        """A capture of the key succeeded."""
        self._spoiled.pop(key, None)

    def report_again(self) -> None:
        """Into a report that was reset since: a graph stands there again from its next call on."""
        if not self._is_reported and self._record is not None:
            ledger.add(self._record)
            self._is_reported = True

    def forget(self) -> None:
        """Keys and warnings; a program that is never captured stays so."""
        self._eager_keys.clear()
        if self.mode is Mode.PARTLY:
            self.mode = Mode.CAPTURED
        self._spoiled.clear()
        self._warned.clear()
        self._is_reported = False

    def warn_once(self, what: str, message: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            warn_user(message)

    def check_admitted(self, args: list[Any]) -> None:
        """Raises NotAdmitted, or RuntimeError for what AOTAutograd does not allow either.

        Not needed at a replay, which compares its arguments' forms with the capture's.
        """
        if not torch.is_inference_mode_enabled():
            for index in self._written:
                if args[index].is_inference():
                    raise RuntimeError(
                        f"{self._program.inputs[index].source}, an inference tensor, is written outside of inference "
                        "mode, which torch.compile does not allow. Clone it, or call within torch.inference_mode()."
                    )
        found = engine().first_overlap(args, self._written) if self._written else None
        if found is not None:
            # The program was lowered for arguments of which none shares memory with one that it writes.
            written, other = (self._program.inputs[index].source for index in found)
            raise Overlapping(f"{written} is written and shares memory with {other}")
        for index in self._program.strided_writes:
            if not _is_whole(args[index]):
                source = self._program.inputs[index].source
                raise NotAdmitted(
                    f"{source} is a part of its storage and written by as_strided, perhaps outside that part"
                )
        if self._program.why_not_admitted is not None:
            reason = self._program.why_not_admitted(args)
            if reason is not None:
                raise NotAdmitted(reason)

    def run(self, args: list[Any], *, counted: bool = False) -> list[Any]:
        """The final FX graph, if it is right for these arguments; else as `on_refused`.

        counted: note the collectives that have begun.
        """
        try:
            self.check_admitted(args)
        except NotAdmitted as refusal:
            return self.on_refused(args, refusal)
        ledger.count("eager_calls")
        with torch.no_grad(), without_autocast():
            return list(self._operators(counted=counted)(*args))

    def rehearse(self, args: list[Any]) -> None:
        """Run, counted, as other ranks do before a capture: on copies of what it writes, drawing no random number."""
        device = self._program.device
        indices = [] if device.type == "cpu" else [device.index or 0]
        copies = with_copies(self._program.inputs, args, (InputRole.MUTATED,))
        of_device = {} if device.type == "cpu" else {"device_type": device.type}
        with torch.random.fork_rng(indices, **of_device), torch.no_grad(), without_autocast():
            self._operators(counted=True)(*copies)

    def _operators(self, *, counted: bool) -> Callable[..., Sequence[Any]]:
        return Counted(self._program.gm).run if counted else self._program.gm

    def on_refused(self, args: list[Any], refusal: NotAdmitted) -> list[Any]:
        """By what the program was lowered from: one operator after the other, on the arguments as they are.

        Raises the refusal where that is not known.
        """
        if self._uncaptured is None:
            raise refusal
        ledger.count("eager_calls")
        self.warn_once(
            "refused",
            f"{self._program.name} runs eagerly where it was traced for other arguments: {refusal}. Results "
            "are right, but not replayed. Pass tensors that share no memory with what is written.",
        )
        return list(self._uncaptured(*args))

    def on_foreign(self, args: list[Any]) -> list[Any]:
        """By what the program was lowered from, with gradients where they are on: what a transform wraps may need them.

        Not by the final FX graph, which writes into its own intermediates: those need not be of the arguments' kind.
        """
        if self._uncaptured is None:
            raise Unsuited("an argument is a fake tensor, a subclass, wrapped by a transform, or has a tangent")
        ledger.count("eager_calls")
        return list(self._uncaptured(*args))

    def placeholders(self, args: list[Any]) -> list[Any]:
        """What an eager call would return, with zeros for values; nothing is executed."""
        with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad(), without_autocast():
            fakes = [mode.from_tensor(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
            try:
                made = self._program.gm(*fakes)
            except (RuntimeError, NotImplementedError) as error:
                raise CannotGoOn(f"{self._program.name} runs eagerly, and its results are not known before") from error
        return [self._placeholder(i, out, args) if isinstance(out, torch.Tensor) else out for i, out in enumerate(made)]

    def _placeholder(self, index: int, form: torch.Tensor, args: list[Any]) -> torch.Tensor:
        base = self._program.input_views.get(index)
        if base is not None:
            view: torch.Tensor = args[base].as_strided(form.shape, form.stride(), form.storage_offset())
            return view
        return torch.empty_strided(form.shape, form.stride(), dtype=form.dtype, device=self._program.device).zero_()

    def _note(self, reason: str, key: str, obstacle: UnsupportedGraph | None, *, warn: bool = True) -> GraphRecord:
        record = GraphRecord(self._program.name, "skipped", reason, key)
        if obstacle is not None:
            record.operator, record.source = obstacle.operator, obstacle.source
        ledger.add(record)
        if warn:
            for_key = f" for key {key}" if key not in ("", "()") else ""
            warn_user(f"{self._program.name} runs eagerly{for_key}: {reason}. Results are right, but not replayed.")
        return record


def _is_whole(tensor: torch.Tensor) -> bool:
    """Whether its elements are all that its storage holds."""
    return bool(tensor.is_contiguous() and tensor.nbytes == tensor.untyped_storage().nbytes())
