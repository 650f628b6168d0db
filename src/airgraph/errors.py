"""The errors that a caller of the package can meet; those of the command line, and what one part of the package says to
another, are with those who raise them.

AirgraphError
├── OptionError        an option's name or value is wrong            (also a ValueError)
├── PassError          a pass of yours failed or left an unsound graph
├── UnsupportedGraph   this program cannot be captured: it runs eagerly
│   ├── CapturedElsewhere  a capture now would become part of somebody else's
│   ├── FailedOperator an operator of it raises
│   └── SpoiledCapture another thread spoiled the capture: the next one may succeed
├── CaptureError       a capture was used against its rules
├── ReplayError        a replay failed
│   └── InputMoved     an input is not where it was captured
├── StreamError        streams or events were used against their rules
├── CacheError         a compile cache cannot be used
│   ├── Unwritable     what was traced has no place in its files: the call is compiled instead
│   │   └── UnsupportedPath  a value is reached in a way that cannot be written down
│   ├── UnsupportedExpression  an expression over sizes uses what is not known to it
│   ├── CannotCapture  a graph of a file fails where a traced one would not
│   └── NotAdmitted    a graph is not right for the arguments of a call
│       └── Unsuited   nor is any other, only the function itself
│           └── Overlapping  an argument that is written shares memory with another
├── NotOffered         a name of TorchAir's that airgraph refuses    (also a NotImplementedError)
│   ├── NotImportable  the same of a module                  (also a ModuleNotFoundError)
│   └── NotServed      a name of torch_npu's that the stand-in does not have  (also an AttributeError)
├── PlotsMissing       the plotting library is not installed   (also an ImportError)
├── UnsupportedArgument  an operator of torch_npu's was given what it does not do here   (also a ValueError)
├── OperatorsExist     torch_npu's operators are here already  (also a RuntimeError)
└── InternalError      our fault: please report it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "AirgraphError",
    "CacheError",
    "CannotCapture",
    "CaptureError",
    "CapturedElsewhere",
    "FailedOperator",
    "InputMoved",
    "InternalError",
    "NotAdmitted",
    "NotImportable",
    "NotOffered",
    "NotServed",
    "OperatorsExist",
    "OptionError",
    "Overlapping",
    "PassError",
    "PlotsMissing",
    "ReplayError",
    "SpoiledCapture",
    "StreamError",
    "UnsupportedArgument",
    "UnsupportedExpression",
    "UnsupportedGraph",
    "UnsupportedPath",
    "Unsuited",
    "Unwritable",
]


class AirgraphError(Exception):
    """The root of the tree."""


class OptionError(AirgraphError, ValueError):
    """An option's name or value is wrong; the message lists close matches or the values allowed."""


class NotOffered(AirgraphError, NotImplementedError):
    """A name of another package whose meaning airgraph does not offer; the message says why and what to use."""


class NotImportable(NotOffered, ModuleNotFoundError):
    """A module of another package whose meaning airgraph does not offer; the message says why."""


class NotServed(NotOffered, AttributeError):
    """A name of torch_npu's that the stand-in does not have; `hasattr` says so as well."""


class PlotsMissing(AirgraphError, ImportError):
    """The plotting library is not installed."""


class UnsupportedArgument(AirgraphError, ValueError):
    """An operator of torch_npu's was given what it does not do here, or what it does nowhere.

    operator, argument: their names in torch_npu. expected: in words. got: a value, or what of it counts.
    """

    def __init__(self, operator: str, argument: str, expected: str, got: object) -> None:
        self.operator = operator
        self.argument = argument
        shown = f"a tensor of shape {tuple(got.shape)}" if hasattr(got, "shape") else repr(got)
        super().__init__(
            f"{operator}: {argument} must be {expected}, got {shown}. What it takes is in npu_operators.md of the "
            "documentation of airgraph."
        )


class OperatorsExist(AirgraphError, RuntimeError):
    """torch_npu's operators are registered in this process, so that airgraph's of the same names cannot be."""


class PassError(AirgraphError):
    """A pass failed or left an unsound graph; the message names pass and node. The graph is as it was before it."""


class UnsupportedGraph(AirgraphError):
    """A program cannot be captured.

    operator: the ATen name that stands in the way. source: the user's line, "file:line".
    reason: one clause in plain words. outputs: of the call that it was to be captured for, where that has been run.
    finished: makes these, until then. has_run: whether it was run before the capture, on what may be written.
    """

    def __init__(self, reason: str, *, operator: str = "", source: str = "") -> None:
        self.reason = reason
        self.outputs: list[object] | None = None
        self.finished: Callable[[], list[object]] | None = None
        self.has_run = False
        self.operator = operator
        self.source = source
        where = f" at {source}" if source else ""
        what = f"{operator}{where}: " if operator else ""
        super().__init__(f"{what}{reason}")


class SpoiledCapture(UnsupportedGraph):
    """What a capture does not allow was done while it was made, perhaps by another thread: the next may succeed."""


class CapturedElsewhere(UnsupportedGraph):
    """A capture would become part of somebody else's, which will be over at some later call."""


class FailedOperator(UnsupportedGraph):
    """An operator raises on the arguments that a program is captured for."""


class CaptureError(AirgraphError, RuntimeError):
    """A capture was used against its rules; the message names the rule."""


class ReplayError(AirgraphError, RuntimeError):
    """A replay failed; the message names operator and source line. The graph stays usable."""


class InputMoved(ReplayError):
    """An input that the graph uses in place is not where it was captured."""


class StreamError(AirgraphError, RuntimeError):
    """Streams or events were used against their rules."""


class CacheError(AirgraphError):
    """A compile cache cannot be used."""


class Unwritable(CacheError):
    """What was traced holds something that the format of a cache's files has no place for."""


class UnsupportedPath(Unwritable):
    """A value is reached in a way that cannot be written down."""


class UnsupportedExpression(CacheError):
    """An expression over sizes uses something that is not known to it."""


class CannotCapture(CacheError):
    """A program of a cache file fails where one that was traced would not; nothing was executed."""


class NotAdmitted(CacheError):
    """A program is not right for the arguments of a call; nothing was executed."""


class Unsuited(NotAdmitted):
    """No traced program is right for the arguments of a call, only the function itself."""


class Overlapping(Unsuited):
    """An argument that is written shares memory with another."""


class InternalError(AirgraphError):
    """A fault of airgraph itself."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message}. This is a fault of airgraph: please report it with the program that showed it.")
